/**
 * Waiting with a limit: with abort signals and time-outs.
 *
 * Owns: the few ways in which this library waits. Must never: know the reason for a wait, or leave a listener or a
 * timer behind.
 */

/** Maximum duration of a timer, in milliseconds: 24 days. A longer timer would fire immediately. */
const MS_MAX = 2 ** 31 - 1;

/**
 * Return a promise, and the functions that settle it.
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
 * The functions to call when a signal is aborted. One listener for each function would be too many, because a program
 * can give one signal to a thousand commands, and Node warns of more than ten listeners.
 * @type {WeakMap<AbortSignal, { calls: Set<() => void>, listener: () => void }>}
 */
const listeners = new WeakMap();

/**
 * Call the function when the signal is aborted, or immediately if it is already aborted.
 * @param {AbortSignal} signal
 * @param {() => void} call
 * @returns {() => void} Cancels the call.
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
  const own = () => call(); // so that the same function can be registered twice
  calls.add(own);
  return () => {
    if (calls.delete(own) && calls.size === 0 && !signal.aborted) {
      listeners.delete(signal);
      signal.removeEventListener("abort", listener);
    }
  };
}

/**
 * Return the promise's value. Rejects with the signal's reason if the signal is aborted first. Do not use this function
 * on a promise that is awaited repeatedly, because the promise remembers each wait.
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
 * Wait this many milliseconds. Rejects with the signal's reason if the signal is aborted earlier.
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

  /** Wake only the caller that has waited longest. */
  ringOne() {
    for (const wake of this.#waiting) {
      this.#waiting.delete(wake);
      wake();
      return;
    }
  }

  /**
   * Wait until the bell rings. Rejects with the signal's reason if the signal is aborted earlier.
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
 * Return a valid time-out. Throws a `TypeError` if it is not valid. No time-out is infinite.
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
 * Run the work with a signal. After `ms` milliseconds, this signal is aborted with the error of `late()`. It is also
 * aborted when `signal` is. The work must then stop.
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
