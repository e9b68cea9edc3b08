/**
 * Waiting with a limit: with abort signals and time-outs.
 *
 * Owns: the few ways in which this library waits. Must never: know the reason for a wait, or leave a listener or a
 * timer behind.
 */
/**
 * Return a promise, and the functions that settle it.
 * @template T
 * @returns {{ promise: Promise<T>, resolve: (value: T) => void, reject: (error: unknown) => void }}
 */
export declare function deferred<T>(): {
    promise: Promise<T>;
    resolve: (value: T) => void;
    reject: (error: unknown) => void;
};
/**
 * Call the function when the signal is aborted, or immediately if it is already aborted.
 * @param {AbortSignal} signal
 * @param {() => void} call
 * @returns {() => void} Cancels the call.
 */
export declare function onAbort(signal: AbortSignal, call: () => void): () => void;
/**
 * Return the promise's value. Rejects with the signal's reason if the signal is aborted first. Do not use this function
 * on a promise that is awaited repeatedly, because the promise remembers each wait.
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal} signal
 * @returns {Promise<T>}
 */
export declare function raced<T>(promise: Promise<T>, signal: AbortSignal): Promise<T>;
/**
 * Wait this many milliseconds. Rejects with the signal's reason if the signal is aborted earlier.
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export declare function sleep(ms: number, signal: AbortSignal): Promise<void>;
/** Wakes all callers that wait when it rings, and forgets those that give up. */
export declare class Bell {
    #private;
    ring(): void;
    /** Wake only the caller that has waited longest. */
    ringOne(): void;
    /**
     * Wait until the bell rings. Rejects with the signal's reason if the signal is aborted earlier.
     * @param {AbortSignal} signal
     * @returns {Promise<void>}
     */
    wait(signal: AbortSignal): Promise<void>;
}
/**
 * Return a valid time-out. Throws a `TypeError` if it is not valid. No time-out is infinite.
 * @param {string} name
 * @param {unknown} ms
 * @returns {number}
 */
export declare function checkMs(name: string, ms: unknown): number;
/**
 * Run the work with a signal. After `ms` milliseconds, this signal is aborted with the error of `late()`. It is also
 * aborted when `signal` is. The work must then stop.
 * @template T
 * @param {number} ms
 * @param {AbortSignal | undefined} signal
 * @param {() => Error} late
 * @param {(signal: AbortSignal) => Promise<T>} work
 * @returns {Promise<T>}
 */
export declare function limited<T>(ms: number, signal: AbortSignal | undefined, late: () => Error, work: (signal: AbortSignal) => Promise<T>): Promise<T>;
