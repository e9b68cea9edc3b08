/**
 * Waiting with a limit: with abort signals and time-outs.
 *
 * Owns: the few ways in which this library waits. Must never: know the reason, or leave a listener or a timer behind.
 */
/**
 * A promise and what settles it.
 * @template T
 * @returns {{ promise: Promise<T>, resolve: (value: T) => void, reject: (error: unknown) => void }}
 */
export declare function deferred<T>(): {
    promise: Promise<T>;
    resolve: (value: T) => void;
    reject: (error: unknown) => void;
};
/**
 * Call once the signal is aborted; at once if it is already.
 * @param {AbortSignal} signal
 * @param {() => void} call
 * @returns {() => void} Cancels it.
 */
export declare function onAbort(signal: AbortSignal, call: () => void): () => void;
/**
 * The promise's value, or the signal's reason, if that comes first. Don't use it on a promise that is awaited
 * repeatedly: the promise remembers each wait.
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal} signal
 * @returns {Promise<T>}
 */
export declare function raced<T>(promise: Promise<T>, signal: AbortSignal): Promise<T>;
/**
 * Wait this many milliseconds; rejects with the signal's reason if that is aborted before.
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export declare function sleep(ms: number, signal: AbortSignal): Promise<void>;
/** Wakes all callers that wait when it rings, and forgets those that give up. */
export declare class Bell {
    #private;
    ring(): void;
    /** Wakes only the one that has waited longest. */
    ringOne(): void;
    /**
     * Wait until it rings; rejects with the signal's reason.
     * @param {AbortSignal} signal
     * @returns {Promise<void>}
     */
    wait(signal: AbortSignal): Promise<void>;
}
/**
 * A valid time-out; else a `TypeError`. None is infinite.
 * @param {string} name
 * @param {unknown} ms
 * @returns {number}
 */
export declare function checkMs(name: string, ms: unknown): number;
/**
 * Run the work with a signal that is aborted after `ms` milliseconds, by `late()`'s error, or when `signal` is. The
 * work has to heed it.
 * @template T
 * @param {number} ms
 * @param {AbortSignal | undefined} signal
 * @param {() => Error} late
 * @param {(signal: AbortSignal) => Promise<T>} work
 * @returns {Promise<T>}
 */
export declare function limited<T>(ms: number, signal: AbortSignal | undefined, late: () => Error, work: (signal: AbortSignal) => Promise<T>): Promise<T>;
