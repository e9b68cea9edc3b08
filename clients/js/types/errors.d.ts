/**
 * All refusals of the broker, and all failures of the client. SPEC sections 5 and 6.
 *
 * Owns: the two tables, and the classes of errors. Must never: know which code throws an error.
 */
export type Next = "retry" | "fix" | "give_up";
/**
 * The remedy after an error: `retry` later, with backoff; `fix` the command, which fails again if unchanged; `give_up`.
 * @typedef {"retry" | "fix" | "give_up"} Next
 */
/** Error codes of replies, and the remedy for each. @type {Readonly<Record<string, Next>>} */
export declare const ERRORS: Readonly<Record<string, Next>>;
/** Close codes after which connecting again is useless or harmful. @type {Readonly<Record<number, string>>} */
export declare const CLOSED_FOR_GOOD: Readonly<Record<number, string>>;
/** The base of all errors of this library. An aborted command rejects with its signal's reason instead. */
export declare class IngeborgError extends Error {
    /** One word for programs: a code of the protocol, or a code of this library. */
    code: string;
    /** The remedy. */
    next: Next;
    /**
     * @param {string} code
     * @param {Next} next
     * @param {string} message
     * @param {ErrorOptions} [options]
     */
    constructor(code: string, next: Next, message: string, options?: ErrorOptions);
}
/**
 * A command got an error reply, or would have got one: the client's own checks refuse a command with the endpoint's
 * codes before the client sends anything. A code that this version does not know means `give_up`.
 */
export declare class ProtocolError extends IngeborgError {
    /** Which field is wrong and why, or what failed. */
    info: string;
    /** Further fields of the reply (`partial`: delivered, failed). */
    extra: Record<string, unknown>;
    /**
     * @param {string} code
     * @param {string} info
     * @param {Record<string, unknown>} [extra]
     */
    constructor(code: string, info: string, extra?: Record<string, unknown>);
}
/**
 * No endpoint of the list accepted a connection. The text has the reason of each endpoint. `code`: `connect_failed`.
 */
export declare class ConnectFailed extends IngeborgError {
    /** @param {string} message */
    constructor(message: string);
}
/**
 * The connection broke before the reply arrived, so it is unknown whether the command took effect. `code`:
 * `connection_lost`. `next` is `give_up`, because the client has already repeated the command if that is safe.
 */
export declare class ConnectionLost extends IngeborgError {
    /** The endpoint's close code (SPEC section 6), or null if the endpoint gave none. */
    closeCode: number | null;
    /**
     * @param {string} message
     * @param {number | null} [closeCode]
     */
    constructor(message: string, closeCode?: number | null);
}
/** There was no reply or no connection in time, so it is unknown whether the command took effect. `code`: `timeout`. */
export declare class CommandTimeout extends IngeborgError {
    /**
     * @param {string} message
     * @param {ErrorOptions} [options]
     */
    constructor(message: string, options?: ErrorOptions);
}
/** The endpoint closed with a code that forbids reconnecting, or `close` was called (1000). `code`: `closed`. */
export declare class ClosedForGood extends IngeborgError {
    /** The close code, SPEC section 6. */
    closeCode: number;
    reason: string;
    /**
     * @param {number} closeCode
     * @param {string} reason
     */
    constructor(closeCode: number, reason: string);
}
/**
 * An attempt to connect to one endpoint failed. The next attempt may succeed. `code`: `unreachable`. `onUnreachable`
 * gets this error.
 */
export declare class Unreachable extends IngeborgError {
    /**
     * @param {string} message
     * @param {ErrorOptions} [options]
     */
    constructor(message: string, options?: ErrorOptions);
}
