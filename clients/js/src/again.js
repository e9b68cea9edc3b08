/**
 * What becomes of one client's subscriptions that end: noticed, subscribed to again, or told. SPEC section 9.
 *
 * Owns: the loop that subscribes again, and when it begins and ends. Must never: know a connection, or ask for two
 * things at a time: after a crash many clients do this in the same seconds.
 */

import { ProtocolError } from "./errors.js";
import { Kept, subscriptionOf } from "./kept.js";
import { sleep } from "./waiting.js";

/** The close code with which an endpoint that was cut off says that subscriptions of its clients have ended. */
export const SUBSCRIPTIONS_ENDED = 4007;

/** @import { Again } from "./kept.js" */
/** @import { Subscription } from "./listings.js" */

/**
 * @typedef {object} Asking What a client does for it.
 * @property {AbortSignal} signal The client's end.
 * @property {(again: Again) => Promise<Record<string, any>[] | null>} subscribe One try. null: it may be at another time;
 *   a `ProtocolError`: it is refused for good.
 * @property {() => Promise<Record<string, any> | null>} listen Once more. null: there is no reply.
 * @property {(attempt: number) => number} delayMs How long to wait after so many failures in a row.
 * @property {(subscriptions: Subscription[], count: number) => void} onEnded These are not renewed here.
 * @property {(error: ProtocolError) => void} onRefused Why, where that is the reason.
 * @property {() => void} onBack What was due has been subscribed to again, or is given up.
 */

/** One client's. Its loop runs only while something is due. */
export class Renewals {
  #asking;
  #kept = new Kept();
  #renewing = false;

  /** @param {Asking} asking */
  constructor(asking) {
    this.#asking = asking;
  }

  /** Some are due, or under way. */
  get isRenewing() {
    return this.#renewing;
  }

  /** Of what it subscribes to again where it ends, some perhaps twice. */
  get topics() {
    return this.#kept.topics;
  }

  /**
   * There was success for these, with this filter and these fields for when they end: so many replies, to commands of
   * which the first was sent at `beganMs`.
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
   * All at these topics was taken out, or is about to be.
   * @param {readonly string[]} topics
   */
  gone(topics) {
    this.#kept.gone(topics);
  }

  /**
   * Those with this filter were taken out, or are about to be.
   * @param {readonly string[]} topics
   * @param {string} filter Its text.
   */
  out(topics, filter) {
    this.#kept.out(topics, filter);
  }

  /**
   * The client listens nowhere any more, for all it knows since then, in ms as of `Date.now()`.
   * @param {number} sinceMs
   */
  left(sinceMs) {
    this.#kept.left(sinceMs);
  }

  /**
   * The client listens: what the reply says has ended is told, or subscribed to again.
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

  /** For as long as it takes. Never rejects: the client's end is what ends it. */
  async #renew() {
    const { signal } = this.#asking;
    try {
      while (!signal.aborted) {
        await this.#takeAll();
        if (!this.#kept.isUnsure || signal.aborted) return;
        // Those that were not named are known now that the client's own are not among them any more.
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
   * False: it may be at another time. What is refused for good is not asked for any more.
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
   * The endpoint says its grace time in each reply, and may change it from one to the next.
   * @param {readonly Record<string, any>[]} replies
   */
  #takeGrace(replies) {
    for (const { grace_s: graceS } of replies) if (typeof graceS === "number") this.#kept.graceMs = graceS * 1_000;
  }
}
