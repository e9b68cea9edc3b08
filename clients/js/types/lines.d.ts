/**
 * Several commands or notifications in one message, with one JSON object per line. SPEC section 1.6.
 *
 * Owns: joining several messages into one, and splitting one into several. Must never: look into a line, do I/O, or
 * decide when to send.
 */
/** The WebSocket subprotocol. */
export declare const LINES = "ingeborg.lines";
/** Maximum number of bytes of a joined message. A longer message is a single command or notification. */
export declare const LINES_BYTES_MAX: number;
/**
 * Return the lines of a message. A line feed may end the last line.
 * @param {string} message
 * @returns {string[]}
 */
export declare function linesOf(message: string): string[];
/** Joins messages that leave at the same moment into as few as possible, in their order. */
export declare class Together {
    #private;
    /** Number of bytes that wait for `flush`: at most the limit of a message, or one command. */
    size: number;
    /** @param {(message: string) => void} send Called by `add` when no further line fits, and by `flush`. */
    constructor(send: (message: string) => void);
    /** @param {string} line Without a line feed, like everything that `JSON.stringify` makes. */
    add(line: string): void;
    /** Send the waiting lines, because the moment is over. */
    flush(): void;
}
