/**
 * Matches replies to commands, and records the errors that belong to no command. SPEC section 9.
 *
 * Owns: the commands' numbers, the commands that wait for replies, and the record of other errors. Must never: send
 * anything, or know a command's content.
 */
import type { ProtocolError } from "./errors.js";
/** The endpoint sent a message that is not of this protocol. */
export declare class Garbage extends Error {
}
/** The replies of one client. `onError` gets each error that no command waits for. */
export declare class Replies {
    #private;
    /** @param {(error: ProtocolError) => void} onError */
    constructor(onError: (error: ProtocolError) => void);
    /** Number of replies that arrived after their commands had stopped waiting. */
    get late(): number;
    /** The latest errors that no command waited for, 1,000 at most. */
    get errors(): ProtocolError[];
    /** The number of all these errors, by code. */
    get errorCounts(): Map<string, number>;
    /**
     * Add a command. Returns its number, and the promise of its reply. The command waits until you call `forget`.
     * @returns {{ id: number, promise: Promise<Record<string, any>> }}
     */
    expect(): {
        id: number;
        promise: Promise<Record<string, any>>;
    };
    /**
     * Stop waiting for the reply to this command.
     * @param {number} id
     */
    forget(id: number): void;
    /**
     * Reject all waiting commands, because no reply will arrive.
     * @param {Error} error
     */
    fail(error: Error): void;
    /**
     * Process a reply. Throws `Garbage` if it is not a valid reply.
     * @param {Record<string, any>} reply
     */
    settle(reply: Record<string, any>): void;
    /**
     * Record an error that no command waits for.
     * @param {ProtocolError} error
     */
    note(error: ProtocolError): void;
}
