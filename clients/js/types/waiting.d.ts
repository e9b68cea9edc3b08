/**
 * Waiting that has an end: with abort signals and time-outs.
 *
 * Owns: the few ways in which this library waits. Must never: know for what, or leave a listener or a timer behind.
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
 * @returns {() => void} Not any more.
 */
export declare function onAbort(signal: AbortSignal, call: () => void): () => void;
/**
 * What the promise gives, or the signal's reason, whichever is first. Only for promises that are not waited for again
 * and again: each wait stays known to them.
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal} signal
 * @returns {Promise<T>}
 */
export declare function raced<T>(promise: Promise<T>, signal: AbortSignal): Promise<T>;
/**
 * So many milliseconds; rejects with the signal's reason when that is aborted before.
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export declare function sleep(ms: number, signal: AbortSignal): Promise<void>;
/** Wakes those who wait at that moment; who gives up waiting is forgotten. */
export declare class Bell {
    #private;
    ring(): void;
    /** Wakes only whoever has waited longest. */
    ringOne(): void;
    /**
     * Until it rings; rejects with the signal's reason.
     * @param {AbortSignal} signal
     * @returns {Promise<void>}
     */
    wait(signal: AbortSignal): Promise<void>;
}
/**
 * A time-out that is one; else a `TypeError`. There is none without an end.
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
