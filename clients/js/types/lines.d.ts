/**
 * Several commands or notifications in one message, one JSON object a line. SPEC section 1.6.
 *
 * Owns: how several messages become one, and one becomes several. Must never: look into a line, do I/O, or decide when
 * to send.
 */
/** The WebSocket subprotocol. */
export declare const LINES = "ingeborg.lines";
/** Maximum number of bytes of a joined message; a longer one is a single command or notification, with any content. */
export declare const LINES_BYTES_MAX: number;
/**
 * The lines of a message. A line feed may end the last one.
 * @param {string} message
 * @returns {string[]}
 */
export declare function linesOf(message: string): string[];
/** Joins messages that leave at the same moment into as few as possible, in their order. */
export declare class Together {
    #private;
    /** Bytes that wait for `flush`; never more than the limit of a message, or one command. */
    size: number;
    /** @param {(message: string) => void} send Runs when no more fits, and in `flush`. */
    constructor(send: (message: string) => void);
    /** @param {string} line Without a line feed, like everything that `JSON.stringify` makes. */
    add(line: string): void;
    /** Send the rest: the moment is over. */
    flush(): void;
}
