/**
 * Several commands or notifications in one message, one JSON object a line. SPEC section 1.6.
 *
 * Owns: how messages are put together into one, and how one is taken apart. Must never: look into a line, do I/O, or
 * decide when it is time to send.
 */
/** The WebSocket subprotocol. */
export declare const LINES = "ingeborg.lines";
/** A longer message is one command, or one notification, whatever is in it. */
export declare const LINES_BYTES_MAX: number;
/**
 * The lines of a message. A line feed may end the last one.
 * @param {string} message
 * @returns {string[]}
 */
export declare function linesOf(message: string): string[];
/** Messages that are to be sent at the same moment: as few as may be are made of them, in their order. */
export declare class Together {
    #private;
    /** Bytes that wait for `flush`; never more than a message may have, or one command. */
    size: number;
    /** @param {(message: string) => void} send Is called whenever no more fits, and by `flush`. */
    constructor(send: (message: string) => void);
    /** @param {string} line Without a line feed, as everything is that `JSON.stringify` makes. */
    add(line: string): void;
    /** The moment is over. */
    flush(): void;
}
