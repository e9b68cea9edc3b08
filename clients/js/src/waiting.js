/**
 * Waiting with a limit: with abort signals and time-outs.
 *
 * Owns: the few ways in which this library waits. Must never: know the reason, or leave a listener or a timer behind.
 */

/** The longest timer, in milliseconds, 24 days: a longer one would fire at once. */
const MS_MAX = 2 ** 31 - 1;

/**
 * A promise and what settles it.
 * @template T
 * @returns {{ promise: Promise<T>, resolve: (value: T) => void, reject: (error: unknown) => void }}
 */
export function deferred() {
  /** @type {any} */
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

/**
 * The functions to call when a signal is aborted. One listener each would be too many: a program can give one signal to
 * a thousand commands, and Node warns of more than ten listeners.
 * @type {WeakMap<AbortSignal, { calls: Set<() => void>, listener: () => void }>}
 */
const listeners = new WeakMap();

/**
 * Call once the signal is aborted; at once if it is already.
 * @param {AbortSignal} signal
 * @param {() => void} call
 * @returns {() => void} Cancels it.
 */
export function onAbort(signal, call) {
  if (signal.aborted) {
    call();
    return () => {};
  }
  let found = listeners.get(signal);
  if (found === undefined) {
    /** @type {Set<() => void>} */
    const calls = new Set();
    const listener = () => {
      listeners.delete(signal);
      for (const one of calls) one();
    };
    found = { calls, listener };
    listeners.set(signal, found);
    signal.addEventListener("abort", listener, { once: true });
  }
  const { calls, listener } = found;
  const own = () => call(); // so that the same function can be there twice
  calls.add(own);
  return () => {
    if (calls.delete(own) && calls.size === 0 && !signal.aborted) {
      listeners.delete(signal);
      signal.removeEventListener("abort", listener);
    }
  };
}

/**
 * The promise's value, or the signal's reason, if that comes first. Don't use it on a promise that is awaited
 * repeatedly: the promise remembers each wait.
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal} signal
 * @returns {Promise<T>}
 */
export function raced(promise, signal) {
  return new Promise((resolve, reject) => {
    const forget = onAbort(signal, () => reject(signal.reason));
    promise.then(resolve, reject).finally(forget);
  });
}

/**
 * Wait this many milliseconds; rejects with the signal's reason if that is aborted before.
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      forget();
      resolve();
    }, ms);
    const forget = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/** Wakes all callers that wait when it rings, and forgets those that give up. */
export class Bell {
  /** @type {Set<() => void>} */
  #waiting = new Set();

  ring() {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  /** Wakes only the one that has waited longest. */
  ringOne() {
    for (const wake of this.#waiting) {
      this.#waiting.delete(wake);
      wake();
      return;
    }
  }

  /**
   * Wait until it rings; rejects with the signal's reason.
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  wait(signal) {
    return new Promise((resolve, reject) => {
      const wake = () => {
        forget();
        resolve();
      };
      this.#waiting.add(wake);
      const forget = onAbort(signal, () => {
        this.#waiting.delete(wake);
        reject(signal.reason);
      });
    });
  }
}

/**
 * A valid time-out; else a `TypeError`. None is infinite.
 * @param {string} name
 * @param {unknown} ms
 * @returns {number}
 */
export function checkMs(name, ms) {
  if (typeof ms !== "number" || !(ms > 0 && ms <= MS_MAX)) {
    throw new TypeError(`${name} has to be a number of milliseconds above 0, ${MS_MAX} at most`);
  }
  return ms;
}

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
export async function limited(ms, signal, late, work) {
  checkMs("timeoutMs", ms);
  signal?.throwIfAborted();
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(late()), ms);
  const forget = signal === undefined ? undefined : onAbort(signal, () => limit.abort(signal.reason));
  try {
    return await work(limit.signal);
  } finally {
    clearTimeout(timer);
    forget?.();
  }
}
