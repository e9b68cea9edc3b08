/**
 * A client's view of subscriptions that end automatically: those that it made, and those that it has to renew.
 *
 * Owns: the list of subscriptions that end when the client disconnects, and which subscriptions the client has to
 * renew. Must never: send anything, or read a clock. Callers pass the time, in ms as of `Date.now()`. SPEC sections 2.2
 * and 9.
 *
 * The list is as long as the program makes it. A program that uses no such subscriptions has an empty list.
 */

import { neighbours } from "./requests.js";
import { TTL_S_MAX, filterText, isObject, termFields } from "./text.js";

/**
 * Maximum number of topics in one renewing command. After a crash, many clients renew in the same seconds. So each
 * client sends its commands one by one, and each command is short.
 */
export const AGAIN_TOPICS_MAX = 1_000;

/**
 * If a client was away for longer than this fraction of the grace time, it may be too late by the endpoints' clocks.
 */
const SURE = 0.5;

/** When the list exceeds this length, the client first searches it for subscriptions whose time is up. */
const TIMED_MAX = 1_000;

/** @import { Subscription } from "./listings.js" */

/**
 * Topics to subscribe to in one command, the text of the command's filter, and its other fields.
 * @typedef {{ topics: string[], filter?: string, fields: Record<string, unknown> }} Again
 */

/**
 * Return a subscription's key: its topic, a separator that no topic has, and the text of its filter.
 * @param {string} topic
 * @param {string} [filter]
 */
const keyOf = (topic, filter) => (filter === undefined ? topic : `${topic}\n${filter}`);

/**
 * @param {string} key
 * @returns {[topic: string, filter?: string]}
 */
function partsOf(key) {
  const end = key.indexOf("\n");
  return end < 0 ? [key] : [key.slice(0, end), key.slice(end + 1)];
}

/**
 * @param {string} topic
 * @param {string} [filter] Its text.
 * @returns {Subscription}
 */
export const subscriptionOf = (topic, filter) => (filter === undefined ? { topic } : { topic, filter: JSON.parse(filter) });

/** The subscriptions of one client that end when it disconnects. */
export class Kept {
  /** The grace time that an endpoint stated last. */
  graceMs = Infinity;
  /** Whether the reply did not name all ended subscriptions. After the renewals, the next reply names the rest. */
  isUnsure = false;
  /** @type {Map<string, number>} */
  #ends = new Map(); // for each key: when the subscription's time is up, or infinity
  /** @type {Map<string, Set<string>>} */
  #filters = new Map(); // for each topic: the filters of its subscriptions
  #timedMax = TIMED_MAX;
  /** @type {string[]} */
  #due = []; // keys; the next key is last
  #listens = false;
  #sinceMs = 0; // since when the client listens
  #leftMs = 0;

  get size() {
    return this.#ends.size;
  }

  /** @returns {string[]} The topics of the list. A topic can occur twice. */
  get topics() {
    return [...this.#ends.keys()].map((key) => partsOf(key)[0]);
  }

  get isDue() {
    return this.#due.length > 0;
  }

  /**
   * Note that an endpoint has accepted subscriptions to these topics, with this filter. `beganMs`: when the client sent
   * the first of several commands.
   * @param {readonly string[]} topics
   * @param {string | undefined} filter Its text.
   * @param {number | undefined} ttlS
   * @param {number} nowMs
   * @param {number} [beganMs]
   */
  subscribed(topics, filter, ttlS, nowMs, beganMs = nowMs) {
    // SPEC 2.2: for a client that has never listened, the time runs from the subscribe.
    if (this.#ends.size === 0 && !this.#listens) this.#leftMs = beganMs;
    const endsMs = ttlS === undefined ? Infinity : nowMs + ttlS * 1_000;
    const keys = topics.map((topic) => keyOf(topic, filter));
    for (const key of keys) this.#ends.set(key, endsMs);
    if (filter !== undefined) {
      for (const topic of topics) this.#filters.set(topic, (this.#filters.get(topic) ?? new Set()).add(filter));
    }
    if (ttlS !== undefined && this.#ends.size > this.#timedMax) {
      // A page can keep subscribing to new topics with a limited time. Search again when the list is twice as long.
      for (const [key, atMs] of this.#ends) if (atMs <= nowMs) this.#out(key);
      this.#timedMax = Math.max(2 * this.#ends.size, TIMED_MAX);
    }
    // The client was away in between, so the first commands' subscriptions may have ended before the last command.
    if (this.#listens && this.#sinceMs > beganMs) this.#due = keys.reverse().concat(this.#due);
  }

  /**
   * Remove all subscriptions to these topics from the list.
   * @param {readonly string[]} topics
   */
  gone(topics) {
    if (this.#ends.size === 0) return;
    for (const topic of topics) {
      for (const filter of [undefined, ...(this.#filters.get(topic) ?? [])]) this.#out(keyOf(topic, filter));
    }
  }

  /**
   * Remove these subscriptions from the list, because the client has unsubscribed, or has changed when they end.
   * @param {readonly string[]} topics
   * @param {string | undefined} filter Its text.
   */
  out(topics, filter) {
    for (const topic of topics) this.#out(keyOf(topic, filter));
  }

  /** @param {string} key */
  #out(key) {
    this.#ends.delete(key);
    const [topic, filter] = partsOf(key);
    const filters = filter === undefined ? undefined : this.#filters.get(topic);
    if (filter !== undefined && filters?.delete(filter) && filters.size === 0) this.#filters.delete(topic);
  }

  /**
   * Note that the client listens nowhere. A page does not notice when its machine sleeps, or when a network goes
   * silent. So the client has been away since it last heard from the endpoint.
   * @param {number} sinceMs When the client last heard from the endpoint.
   */
  left(sinceMs) {
    if (this.#listens) this.#leftMs = sinceMs;
    this.#listens = false;
  }

  /**
   * Process the reply to `listen`: which subscriptions are due, and which others have ended. `isLast`: the reply names
   * all other subscriptions, because the client has already renewed its own.
   * @param {Record<string, any>} reply
   * @param {number} nowMs
   * @param {boolean} isLast
   * @returns {{ subscriptions: Subscription[], count: number } | null}
   */
  listened(reply, nowMs, isLast) {
    const awayMs = this.#listens ? 0 : nowMs - this.#leftMs;
    this.#listens = true;
    this.#sinceMs = nowMs;
    const ended = namedBy(reply);
    const count = Number.isSafeInteger(reply.ended_count) ? Math.max(reply.ended_count, ended.length) : ended.length;
    const isMine = (/** @type {string} */ key) => (this.#ends.get(key) ?? 0) > nowMs;
    const others = ended.filter((key) => !isMine(key));
    this.isUnsure = count > ended.length && this.#ends.size > 0 && !isLast;
    // If the clock was set back, it is unknown how long the client was away.
    const isLong = awayMs < 0 || awayMs > SURE * this.graceMs;
    const due = new Set(this.isUnsure || isLong ? this.#ends.keys() : [...this.#due.toReversed(), ...ended.filter(isMine)]);
    this.#due = ordered(due).reverse();
    for (const key of others) this.#out(key);
    const left = count - (ended.length - others.length);
    if (left === 0 || this.isUnsure) return null;
    return { subscriptions: others.map((key) => subscriptionOf(...partsOf(key))), count: left };
  }

  /**
   * Return the next subscriptions that are due, with the rest of their time, or null if none is due.
   * @param {number} nowMs
   * @returns {Again | null}
   */
  take(nowMs) {
    /** @type {string[]} */
    const topics = [];
    /** @type {{ filter?: string, ttlS?: number }} */
    let ofThese = {};
    for (let key; topics.length < AGAIN_TOPICS_MAX && (key = this.#due.at(-1)) !== undefined; ) {
      const leftMs = (this.#ends.get(key) ?? 0) - nowMs;
      if (leftMs > 0) {
        const [topic, filter] = partsOf(key);
        const ttlS = leftMs === Infinity ? undefined : Math.min(Math.ceil(leftMs / 1_000), TTL_S_MAX);
        if (topics.length > 0 && (filter !== ofThese.filter || ttlS !== ofThese.ttlS)) break;
        ofThese = { filter, ttlS };
        topics.push(topic);
      } else {
        this.#out(key); // the subscription has ended, or the client has unsubscribed meanwhile
      }
      this.#due.pop();
    }
    if (topics.length === 0) return null;
    const { filter, ttlS } = ofThese;
    const term = termFields("disconnect", ttlS);
    if (filter === undefined) return { topics, fields: term };
    return { topics, filter, fields: { filter: JSON.parse(filter), ...term } };
  }

  /**
   * Make these subscriptions due again, because the attempt to renew them failed.
   * @param {Again} again
   */
  putBack({ topics, filter }) {
    for (const topic of topics.toReversed()) this.#due.push(keyOf(topic, filter));
  }
}

/**
 * Return the keys of the subscriptions that a reply names. Entries of any other form are skipped.
 * @param {Record<string, any>} reply
 * @returns {string[]}
 */
function namedBy({ ended }) {
  const isNamed = (/** @type {any} */ each) =>
    typeof each?.topic === "string" && (each.filter === undefined || isObject(each.filter));
  return (Array.isArray(ended) ? ended.filter(isNamed) : []).map(({ topic, filter }) =>
    keyOf(topic, filter && filterText(filter)),
  );
}

/**
 * Group the keys by filter. Within a group that needs several commands, neighbouring topics stay together.
 * @param {Iterable<string>} keys
 */
function ordered(keys) {
  /** @type {Map<string | undefined, string[]>} */
  const byFilter = new Map();
  for (const key of keys) {
    const [topic, filter] = partsOf(key);
    const topics = byFilter.get(filter);
    if (topics === undefined) byFilter.set(filter, [topic]);
    else topics.push(topic);
  }
  return [...byFilter].flatMap(([filter, topics]) =>
    (topics.length > AGAIN_TOPICS_MAX ? neighbours(topics) : topics).map((topic) => keyOf(topic, filter)),
  );
}
