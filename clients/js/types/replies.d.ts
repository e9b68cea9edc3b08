/**
 * Which command a reply belongs to, and the errors that belong to no command. SPEC section 9.
 *
 * Owns: the numbers of commands, those that wait for their replies, and the record of other errors. Must never: send
 * anything, or know a command's content.
 */
import type { ProtocolError } from "./errors.js";
/** The endpoint sent a message that is not of this protocol. */
export declare class Garbage extends Error {
}
/** The replies of one client. `onError`: gets each error that no command waits for. */
export declare class Replies {
    #private;
    /** @param {(error: ProtocolError) => void} onError */
    constructor(onError: (error: ProtocolError) => void);
    /** Replies to commands that nobody waited for any longer. */
    get late(): number;
    /** The latest errors that no command waited for, 1,000 at most. */
    get errors(): ProtocolError[];
    /** Counts of all these errors, by code. */
    get errorCounts(): Map<string, number>;
    /**
     * Add a command: its number, and the promise of its reply. It waits until you forget it.
     * @returns {{ id: number, promise: Promise<Record<string, any>> }}
     */
    expect(): {
        id: number;
        promise: Promise<Record<string, any>>;
    };
    /**
     * Stop waiting for its reply.
     * @param {number} id
     */
    forget(id: number): void;
    /**
     * Reject all that wait: no reply will come.
     * @param {Error} error
     */
    fail(error: Error): void;
    /**
     * Take a reply. `Garbage`: it is not one.
     * @param {Record<string, any>} reply
     */
    settle(reply: Record<string, any>): void;
    /**
     * Record an error that no command waits for.
     * @param {ProtocolError} error
     */
    note(error: ProtocolError): void;
}
