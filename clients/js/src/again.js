/**
 * Handles the subscriptions of one client that end: notices the end, and subscribes again or reports it. SPEC section
 * 9.
 *
 * Owns: the loop that subscribes again, and when it begins and ends. Must never: know a connection, or send two
 * commands at the same time, because after a crash many clients subscribe again in the same seconds.
 */

import { ProtocolError } from "./errors.js";
import { Kept, subscriptionOf } from "./kept.js";
import { sleep } from "./waiting.js";

/** The close code by which an endpoint that was cut off says that subscriptions of its clients have ended. */
export const SUBSCRIPTIONS_ENDED = 4007;

/** @import { Again } from "./kept.js" */
/** @import { Subscription } from "./listings.js" */

/**
 * @typedef {object} Asking What the client provides.
 * @property {AbortSignal} signal Aborted when the client ends.
 * @property {(again: Again) => Promise<Record<string, any>[] | null>} subscribe Try once. Resolves to null if another
 *   try may succeed. Throws a `ProtocolError` if the endpoint refuses permanently.
 * @property {() => Promise<Record<string, any> | null>} listen Listen once more. Resolves to null if no reply arrives.
 * @property {(attempt: number) => number} delayMs The wait after this many failures in a row.
 * @property {(subscriptions: Subscription[], count: number) => void} onEnded Reports subscriptions that have ended and
 *   that the client does not renew.
 * @property {(error: ProtocolError) => void} onRefused Reports why an endpoint refused subscriptions.
 * @property {() => void} onBack Called when the client has renewed all due subscriptions, or has given them up.
 */

/** The renewals of one client. The loop runs only while renewals are due. */
export class Renewals {
  #asking;
  #kept = new Kept();
  #renewing = false;

  /** @param {Asking} asking */
  constructor(asking) {
    this.#asking = asking;
  }

  /** Whether renewals are due or running. */
  get isRenewing() {
    return this.#renewing;
  }

  /** The topics of the subscriptions that the client renews when they end. A topic can occur twice. */
  get topics() {
    return this.#kept.topics;
  }

  /**
   * Note a successful subscribe: its topics, filter, fields for the end, and replies. The client sent the first of its
   * commands at `beganMs`.
   * @param {readonly string[]} topics
   * @param {string | undefined} filter Its text.
   * @param {Record<string, any>} fields
   * @param {readonly Record<string, any>[]} replies
   * @param {number} beganMs
   */
  subscribed(topics, filter, fields, replies, beganMs) {
    if (fields.until === undefined) {
      this.#kept.out(topics, filter);
      return;
    }
    this.#takeGrace(replies);
    this.#kept.subscribed(topics, filter, fields.ttl_s, Date.now(), replies.length > 1 ? beganMs : undefined);
    this.#begin();
  }

  /**
   * Note that all subscriptions to these topics have been removed, or are about to be removed.
   * @param {readonly string[]} topics
   */
  gone(topics) {
    this.#kept.gone(topics);
  }

  /**
   * Note that the subscriptions with this filter have been removed, or are about to be removed.
   * @param {readonly string[]} topics
   * @param {string} filter Its text.
   */
  out(topics, filter) {
    this.#kept.out(topics, filter);
  }

  /**
   * Note that the client listens nowhere.
   * @param {number} sinceMs Since when, as far as the client knows, in ms as of `Date.now()`.
   */
  left(sinceMs) {
    this.#kept.left(sinceMs);
  }

  /**
   * Process the reply to a `listen`: report the ended subscriptions that it names, or subscribe to them again.
   * @param {Record<string, any>} reply
   * @param {boolean} [isLast]
   */
  listened(reply, isLast = false) {
    const ended = this.#kept.listened(reply, Date.now(), isLast);
    this.#begin();
    if (ended !== null) this.#asking.onEnded(ended.subscriptions, ended.count);
  }

  #begin() {
    if (!this.#kept.isDue || this.#renewing || this.#asking.signal.aborted) return;
    this.#renewing = true;
    this.#renew();
  }

  /** Runs until no renewal is due, or until the client ends. Never rejects. */
  async #renew() {
    const { signal } = this.#asking;
    try {
      while (!signal.aborted) {
        await this.#takeAll();
        if (!this.#kept.isUnsure || signal.aborted) return;
        // The client has renewed its own subscriptions, so the next reply names only the other ended subscriptions.
        const reply = await this.#asking.listen();
        if (reply !== null) this.listened(reply, true);
        else if (!this.#kept.isDue) return;
      }
    } finally {
      this.#renewing = false;
      this.#asking.onBack();
    }
  }

  async #takeAll() {
    const { signal } = this.#asking;
    for (let attempt = 0, again; (again = this.#kept.take(Date.now())) !== null; ) {
      if (await this.#isTaken(again)) {
        attempt = 0;
      } else {
        this.#kept.putBack(again);
        await sleep(this.#asking.delayMs(attempt++), signal).catch(() => {});
      }
      if (signal.aborted) return;
    }
  }

  /**
   * Try once. Returns false if another try may succeed. Refused subscriptions are not tried again.
   * @param {Again} again
   */
  async #isTaken(again) {
    let replies;
    try {
      replies = await this.#asking.subscribe(again);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      const { topics, filter } = again;
      this.#kept.out(topics, filter);
      this.#asking.onRefused(error);
      this.#asking.onEnded(topics.map((topic) => subscriptionOf(topic, filter)), topics.length);
      return true;
    }
    if (replies === null) return false;
    this.#takeGrace(replies);
    return true;
  }

  /**
   * Read the grace time from these replies. An endpoint states it in each reply, and can change it from one reply to
   * the next.
   * @param {readonly Record<string, any>[]} replies
   */
  #takeGrace(replies) {
    for (const { grace_s: graceS } of replies) if (typeof graceS === "number") this.#kept.graceMs = graceS * 1_000;
  }
}
