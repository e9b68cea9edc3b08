/**
 * The credit that opens a window again: how many notifications of a connection the program has processed. SPEC section
 * 2.8.
 *
 * Owns: the connection's counts, and when it confirms them. Must never: know a connection, or confirm a notification
 * that still waits for the program.
 */
/** A processed notification is confirmed after this time at the latest, in milliseconds, however few there are. */
export declare const IDLE_MS = 100;
/** The credit of one client, which has one connection at a time. */
export declare class Credit {
    #private;
    /**
     * @param {number} window
     * @param {(count: number) => void} send Confirms the connection's first `count` notifications as processed.
     */
    constructor(window: number, send: (count: number) => void);
    /** Begin with another connection: what has come before does not count. */
    begin(): void;
    /** A notification has come. */
    receive(): void;
    /**
     * The program has processed everything but the latest `waiting` notifications. Those of an earlier connection leave
     * the queue first, so they can only delay a confirmation.
     * @param {number} waiting
     */
    update(waiting: number): void;
    /** Confirm nothing more. */
    stop(): void;
}
