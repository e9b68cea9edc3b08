/**
 * The credit that opens a window again: how many notifications of a connection the program has processed. SPEC section
 * 2.8.
 *
 * Owns: a connection's counts, and when the client confirms them. Must never: know a connection, or confirm a
 * notification that still waits for the program.
 */
/** The client confirms a processed notification after this many milliseconds at the latest, even if there are few. */
export declare const IDLE_MS = 100;
/** The credit of one client, which has one connection at a time. */
export declare class Credit {
    #private;
    /**
     * @param {number} window
     * @param {(count: number) => void} send Confirms the connection's first `count` notifications as processed.
     */
    constructor(window: number, send: (count: number) => void);
    /** Begin with another connection. Notifications of earlier connections do not count. */
    begin(): void;
    /** Count a notification that has arrived. */
    receive(): void;
    /**
     * Note that the program has processed all notifications except the latest `waiting`. Notifications of an earlier
     * connection leave the queue first, so they can only delay a confirmation.
     * @param {number} waiting
     */
    update(waiting: number): void;
    /** Confirm nothing more. */
    stop(): void;
}
