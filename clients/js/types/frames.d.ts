/**
 * The frames of RFC 6455 as a client reads and writes them. Node only: it works on Buffers.
 *
 * Owns: which bytes are valid frames from a server, and the bytes of the client's frames. Must never: do I/O, or hold
 * more bytes than a message may have, even if the message arrives in tiny pieces.
 */
export declare const TEXT = 1;
export declare const CLOSE = 8;
export declare const PING = 9;
export declare const PONG = 10;
export declare const PROTOCOL_VIOLATION = 1002;
export declare const NOT_UTF8 = 1007;
export declare const TOO_LARGE = 1009;
/** The server broke the rules; `closeCode` says how. */
export declare class Violation extends Error {
    closeCode: number;
    /**
     * @param {number} closeCode
     * @param {string} message
     */
    constructor(closeCode: number, message: string);
}
/**
 * Return a whole masked frame.
 * @param {number} opcode
 * @param {string | Buffer} payload A string is written as UTF-8.
 * @param {Buffer} mask Four bytes that the payload's author cannot foresee (RFC 6455 section 5.3).
 * @returns {Buffer}
 */
export declare function frame(opcode: number, payload: string | Buffer, mask: Buffer): Buffer;
/**
 * Return the payload of a close frame.
 * @param {number} code
 * @param {string} reason 123 bytes at most.
 * @returns {Buffer}
 */
export declare function closePayload(code: number, reason: string): Buffer;
export type FrameHandlers = {
    /**
     * A whole text message arrived.
     */
    message: (text: string) => void;
    ping: (payload: Buffer) => void;
    pong: () => void;
    /**
     * A close frame arrived. No other frame follows.
     */
    close: (code: number | null, reason: string) => void;
};
/**
 * Functions that are called for a server's frames.
 * @typedef {object} FrameHandlers
 * @property {(text: string) => void} message A whole text message arrived.
 * @property {(payload: Buffer) => void} ping
 * @property {() => void} pong
 * @property {(code: number | null, reason: string) => void} close A close frame arrived. No other frame follows.
 */
/** Reads a server's frames. */
export declare class FrameReader {
    #private;
    /**
     * @param {number} messageBytesMax
     * @param {FrameHandlers} handlers
     */
    constructor(messageBytesMax: number, handlers: FrameHandlers);
    /**
     * Handle a chunk from the connection, which can hold many frames, or a part of one frame. Throws a `Violation`.
     * @param {Buffer} chunk
     */
    push(chunk: Buffer): void;
    /** Ignore everything that arrives from now on. */
    stop(): void;
}
