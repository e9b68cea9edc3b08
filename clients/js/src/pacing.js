/**
 * Limits how many commands of a large subscribe run at the same time.
 *
 * Owns: the number of running commands, and the wait until all have settled. Must never: know or repeat a command.
 */

import { onAbort } from "./waiting.js";

/**
 * The number of concurrent commands begins at 1. Each reply faster than `MS_SHORT` adds 1 to this number. Each reply
 * slower than `MS_LONG` halves it. The maximum number of commands is as much work as an endpoint with an embedded store
 * does at the same time. One command takes less than a time-out, even with a slow store.
 */
const AT_ONCE_MAX = 32;
const MS_SHORT = 1_500;
const MS_LONG = 3_000;

/**
 * Send all commands, and return their replies in any order. The first error stops the sending, and is thrown.
 * @param {readonly string[]} bodies
 * @param {AbortSignal | undefined} signal
 * @param {(text: string, signal: AbortSignal | undefined) => Promise<Record<string, any>>} send
 * @returns {Promise<Record<string, any>[]>}
 */
export async function paced(bodies, signal, send) {
  if (bodies.length === 1) return [await send(bodies[0], signal)];
  /** @type {Record<string, any>[]} */
  const replies = [];
  const stopped = new AbortController();
  const forget = signal === undefined ? undefined : onAbort(signal, () => stopped.abort(signal.reason));
  let atOnce = 1;
  let next = 0;
  /** @type {Set<Promise<void>>} */
  const underWay = new Set();
  const timed = async (/** @type {string} */ text) => {
    const beganMs = performance.now();
    replies.push(await send(text, stopped.signal));
    const tookMs = performance.now() - beganMs;
    if (tookMs > MS_LONG) atOnce = Math.max(atOnce / 2, 1);
    else if (tookMs < MS_SHORT) atOnce = Math.min(atOnce + 1, AT_ONCE_MAX);
  };
  try {
    while (next < bodies.length || underWay.size > 0) {
      while (next < bodies.length && underWay.size < atOnce) {
        const sent = timed(bodies[next++]).finally(() => underWay.delete(sent));
        underWay.add(sent);
      }
      await Promise.race(underWay);
    }
  } finally {
    forget?.();
    stopped.abort();
    await Promise.allSettled(underWay);
  }
  return replies;
}
