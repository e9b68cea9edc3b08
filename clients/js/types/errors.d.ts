/**
 * All refusals of the broker, and all failures of the client. SPEC sections 5 and 6.
 *
 * Owns: the two tables, and the classes of errors. Must never: know which code throws.
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
    /** One word for programs: a code of the protocol, or one of this library's. */
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
 * A command that got an error reply, or would get one: the client's own checks refuse it with the endpoint's codes
 * before it sends anything. A code that this version does not know means `give_up`.
 */
export declare class ProtocolError extends IngeborgError {
    /** Which field and why, or what failed. */
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
/** No endpoint of the list accepted a connection; the text has each one's reason. `code`: `connect_failed`. */
export declare class ConnectFailed extends IngeborgError {
    /** @param {string} message */
    constructor(message: string);
}
/**
 * The connection broke before the reply arrived: whether the command took effect is unknown. `code`: `connection_lost`.
 * `next` is `give_up`, since the client has already repeated what it safely can.
 */
export declare class ConnectionLost extends IngeborgError {
    /** The endpoint's close code, SPEC section 6; null: it gave none. */
    closeCode: number | null;
    /**
     * @param {string} message
     * @param {number | null} [closeCode]
     */
    constructor(message: string, closeCode?: number | null);
}
/** No reply in time, or no connection to send on: whether the command took effect is unknown. `code`: `timeout`. */
export declare class CommandTimeout extends IngeborgError {
    /**
     * @param {string} message
     * @param {ErrorOptions} [options]
     */
    constructor(message: string, options?: ErrorOptions);
}
/** The endpoint closed with a code that forbids reconnecting, or `close` was called (1000). `code`: `closed`. */
export declare class ClosedForGood extends IngeborgError {
    /** SPEC section 6. */
    closeCode: number;
    reason: string;
    /**
     * @param {number} closeCode
     * @param {string} reason
     */
    constructor(closeCode: number, reason: string);
}
/** This endpoint failed this time; the next may work. `code`: `unreachable`. `onUnreachable` gets it. */
export declare class Unreachable extends IngeborgError {
    /**
     * @param {string} message
     * @param {ErrorOptions} [options]
     */
    constructor(message: string, options?: ErrorOptions);
}
