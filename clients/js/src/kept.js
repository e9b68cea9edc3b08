/**
 * Subscriptions that end by themselves, as a client sees them: what it has asked for, and what it asks for again.
 *
 * Owns: the list of topics that were subscribed to until the client disconnects, and which of them are due once more.
 * Must never: send anything, or read a clock: the time, in ms as of `Date.now()`, comes in as an argument. SPEC sections
 * 2.2 and 9.
 *
 * The list is as long as what was subscribed to so; who never asks for such a subscription has an empty one.
 */

import { neighbours } from "./requests.js";
import { TTL_S_MAX, termFields } from "./text.js";

/**
 * Topics that are subscribed to again in one command: many clients do this in the same seconds, after a crash, so each
 * sends one command after the other, and none is long.
 */
export const AGAIN_TOPICS_MAX = 1_000;

/** Of the grace time: who was away for longer may have come too late, by the endpoints' clocks. */
const SURE = 0.5;

/** Topics whose time may be up, before they are looked through the first time. */
const TIMED_MAX = 1_000;

/**
 * Topics to subscribe to in one command, and its other fields.
 * @typedef {{ topics: string[], fields: Record<string, unknown> }} Again
 */

/** What one client has subscribed to until it disconnects. */
export class Kept {
  /** As an endpoint said last. */
  graceMs = Infinity;
  /** More had ended than were named: whose they are is known when these are subscribed to. */
  isUnsure = false;
  /** @type {Map<string, number>} */
  #ends = new Map(); // by topic: when its time is up, or infinity
  #timedMax = TIMED_MAX;
  /** @type {string[]} */
  #due = []; // the next one last
  #listens = false;
  #sinceMs = 0; // that it listens
  #leftMs = 0;

  get size() {
    return this.#ends.size;
  }

  /** @returns {string[]} All that are in the list. */
  get topics() {
    return [...this.#ends.keys()];
  }

  get isDue() {
    return this.#due.length > 0;
  }

  /**
   * There was success for these. `beganMs`: when the first of several commands was sent.
   * @param {readonly string[]} topics
   * @param {number | undefined} ttlS
   * @param {number} nowMs
   * @param {number} [beganMs]
   */
  subscribed(topics, ttlS, nowMs, beganMs = nowMs) {
    // SPEC 2.2: for a client that has never listened, from the subscribe on.
    if (this.#ends.size === 0 && !this.#listens) this.#leftMs = beganMs;
    const endsMs = ttlS === undefined ? Infinity : nowMs + ttlS * 1_000;
    for (const topic of topics) this.#ends.set(topic, endsMs);
    if (ttlS !== undefined && this.#ends.size > this.#timedMax) {
      // A page may subscribe to ever new topics whose time is up later; twice as many until the next look.
      for (const [topic, atMs] of this.#ends) if (atMs <= nowMs) this.#ends.delete(topic);
      this.#timedMax = Math.max(2 * this.#ends.size, TIMED_MAX);
    }
    // It was away in between: what the first commands had subscribed to may have ended before the last one.
    if (this.#listens && this.#sinceMs > beganMs) this.#due = topics.toReversed().concat(this.#due);
  }

  /**
   * They were unsubscribed from, or are plain subscriptions now.
   * @param {readonly string[]} topics
   */
  gone(topics) {
    if (this.#ends.size > 0) for (const topic of topics) this.#ends.delete(topic);
  }

  /**
   * It listens nowhere any more, for all it knows since then: what was heard last of the endpoint. A page does not
   * notice when its machine sleeps, or when a network goes silent.
   * @param {number} sinceMs
   */
  left(sinceMs) {
    if (this.#listens) this.#leftMs = sinceMs;
    this.#listens = false;
  }

  /**
   * The reply to `listen` has come: what is due is known, and what has ended that is not in the list. `isLast`: what the
   * reply names is none of these any more, since they have been subscribed to again.
   * @param {Record<string, any>} reply
   * @param {number} nowMs
   * @param {boolean} isLast
   * @returns {{ topics: string[], count: number } | null}
   */
  listened(reply, nowMs, isLast) {
    const awayMs = this.#listens ? 0 : nowMs - this.#leftMs;
    this.#listens = true;
    this.#sinceMs = nowMs;
    /** @type {string[]} */
    const ended = Array.isArray(reply.ended) ? reply.ended.filter((topic) => typeof topic === "string") : [];
    const count = Number.isSafeInteger(reply.ended_count) ? Math.max(reply.ended_count, ended.length) : ended.length;
    const isMine = (/** @type {string} */ topic) => (this.#ends.get(topic) ?? 0) > nowMs;
    const others = ended.filter((topic) => !isMine(topic));
    this.isUnsure = count > ended.length && this.#ends.size > 0 && !isLast;
    // A clock that was set back says nothing.
    const isLong = awayMs < 0 || awayMs > SURE * this.graceMs;
    const due = new Set(this.isUnsure || isLong ? this.#ends.keys() : [...this.#due.toReversed(), ...ended.filter(isMine)]);
    this.#due = (due.size > AGAIN_TOPICS_MAX ? neighbours([...due]) : [...due]).reverse();
    this.gone(others);
    const left = count - (ended.length - others.length);
    return left > 0 && !this.isUnsure ? { topics: others, count: left } : null;
  }

  /**
   * The next ones that are due, with what is left of their time; null: there are none.
   * @param {number} nowMs
   * @returns {Again | null}
   */
  take(nowMs) {
    /** @type {string[]} */
    const topics = [];
    /** @type {number | undefined} */
    let ofThese;
    for (let topic; topics.length < AGAIN_TOPICS_MAX && (topic = this.#due.at(-1)) !== undefined; ) {
      const leftMs = (this.#ends.get(topic) ?? 0) - nowMs;
      if (leftMs > 0) {
        const ttlS = leftMs === Infinity ? undefined : Math.min(Math.ceil(leftMs / 1_000), TTL_S_MAX);
        if (topics.length > 0 && ttlS !== ofThese) break;
        ofThese = ttlS;
        topics.push(topic);
      } else {
        this.#ends.delete(topic); // its time is up, or it was unsubscribed from meanwhile
      }
      this.#due.pop();
    }
    return topics.length === 0 ? null : { topics, fields: termFields("disconnect", ofThese) };
  }

  /**
   * That did not work: they are due still.
   * @param {Again} again
   */
  putBack({ topics }) {
    this.#due.push(...topics.toReversed());
  }
}
