/**
 * Which command a reply belongs to, and the errors that belong to none. SPEC section 9.
 *
 * Owns: the numbers of commands, those that wait for their replies, and the record of errors that nobody waited for. Must
 * never: send anything, or know what a command says.
 */
import type { ProtocolError } from "./errors.js";
/** The endpoint sent a message that is not of this protocol. */
export declare class Garbage extends Error {
}
/** One client's. `onError`: told of each error that no command waits for. */
export declare class Replies {
    #private;
    /** @param {(error: ProtocolError) => void} onError */
    constructor(onError: (error: ProtocolError) => void);
    /** Replies to commands that nobody waited for any more. */
    get late(): number;
    /** The latest errors that no command waited for, 1,000 at most. */
    get errors(): ProtocolError[];
    /** All of them, by code. */
    get errorCounts(): Map<string, number>;
    /**
     * Another command: its number, and the promise of its reply. It waits until it is forgotten.
     * @returns {{ id: number, promise: Promise<Record<string, any>> }}
     */
    expect(): {
        id: number;
        promise: Promise<Record<string, any>>;
    };
    /**
     * Nobody waits for its reply any more.
     * @param {number} id
     */
    forget(id: number): void;
    /**
     * None of those that wait will have a reply.
     * @param {Error} error
     */
    fail(error: Error): void;
    /**
     * A reply has come. `Garbage`: it is none.
     * @param {Record<string, any>} reply
     */
    settle(reply: Record<string, any>): void;
    /**
     * An error that no command waits for.
     * @param {ProtocolError} error
     */
    note(error: ProtocolError): void;
}
