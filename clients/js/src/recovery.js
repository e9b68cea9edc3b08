/**
 * How a client learns what it has missed, and whether that was all. SPEC sections 8.10 and 9.
 *
 * Owns: the position, where it is saved, the messages that have come already, and the gaps that are to be told, each at
 * its place among the notifications. Must never: know a connection, or call the program's handlers.
 *
 * A position covers everything that came before it. So it is *received* when it comes, and *reached* when the program
 * has processed what came before it; only that one is saved.
 */

import { isPosition } from "./history.js";
import { Garbage } from "./replies.js";
import { GROUPS, slotOf } from "./requests.js";

/** Messages whose repetition is noticed: what may come twice is what was under way at the moment of a failure. */
export const MIDS_MAX = 10_000;

/** Topics that one gap names. More of them are told as any. */
export const GAP_TOPICS_MAX = 10_000;

/**
 * Where a position is saved: `localStorage` is one.
 * @typedef {Pick<Storage, "getItem" | "setItem">} Saving
 */

/**
 * Topics of which kept messages may be lacking.
 * @typedef {object} Gap
 * @property {string[] | null} topics Of this client. null: any of its topics.
 */

/**
 * As an endpoint tells it; null: any topic.
 * @typedef {{ topics: Set<string>, slots: Set<number> } | null} Lacking
 */

/**
 * What is to be told, or reached, after so many notifications.
 * @typedef {object} Mark
 * @property {number} after
 * @property {Lacking} [gap]
 * @property {string} [position]
 */

/**
 * As the option `recover` asks for it. A `TypeError`: there is nowhere to save a position.
 * @param {boolean | string | { key: string }} recover
 * @returns {Recovery | null} null: it does not.
 */
export function recoveryOf(recover) {
  if (recover === false) return null;
  if (typeof recover !== "object") return new Recovery(recover);
  let storage;
  try {
    storage = globalThis.localStorage;
    storage.getItem(recover.key);
  } catch (error) {
    throw new TypeError("recover: { key } needs localStorage, which is not to be had here: give a position instead", {
      cause: error,
    });
  }
  return new Recovery(recover, storage);
}

/** One client's. */
export class Recovery {
  #storage;
  #key;
  /** @type {string | null} */
  #received = null;
  /** @type {string | null} */
  #reached = null;
  /** @type {string | null} */
  #held = null;
  /** @type {Set<string>} */
  #mids = new Set(); // the oldest first
  #isListening = false;
  #hasListened = false;
  #isGapDue = false;
  #isWarned = false;

  /** Messages that came again, and were dropped. */
  repeats = 0;

  /**
   * @param {true | string | { key: string }} recover
   * @param {Saving} [storage] For a key.
   */
  constructor(recover, storage) {
    this.#storage = storage;
    this.#key = typeof recover === "object" ? recover.key : null;
    /** @type {unknown} */
    const first = typeof recover === "object" ? storage?.getItem(recover.key) : recover;
    if (isPosition(first)) this.#received = this.#reached = first;
    else if (first !== true && first !== null) this.#isGapDue = true; // what was saved there is no position any more
  }

  /** What the program has processed. null: no position is known yet. */
  get position() {
    return this.#reached;
  }

  /** What has come is in the program's queue, up to here: since when messages may have been missed. */
  get received() {
    return this.#received;
  }

  get isListening() {
    return this.#isListening;
  }

  /** The fields of a `listen`. */
  get fields() {
    return { recover: this.#received ?? true };
  }

  /**
   * The client listens, and what of its subscriptions has ended is known. Gives whether a gap is to be told: without a
   * position nobody knows what it has missed since it listened the last time.
   * @returns {boolean}
   */
  listens() {
    const isGap = this.#isGapDue;
    this.#isListening = this.#hasListened = true;
    this.#isGapDue = false;
    return isGap;
  }

  /** It listens no more. */
  left() {
    this.#isListening = false;
    if (this.#hasListened && this.#received === null) this.#isGapDue = true;
    this.#held = null;
  }

  /**
   * A position has come.
   * @param {string} position
   */
  receive(position) {
    this.#received = position;
  }

  /**
   * A position has come while subscriptions of this client have ended: it does not cover their topics. It is kept until
   * they are back, with what was missed of them.
   * @param {string} position
   */
  hold(position) {
    this.#held = position;
  }

  /** @returns {string | null} The latest that was held, which holds now. */
  release() {
    const held = this.#held;
    this.#held = null;
    return held;
  }

  /**
   * The program has processed what came before this one.
   * @param {string} position
   */
  reach(position) {
    if (position === this.#reached) return;
    this.#reached = position;
    if (this.#key === null) return;
    try {
      /** @type {Saving} */ (this.#storage).setItem(this.#key, position);
    } catch (error) {
      if (!this.#isWarned) console.warn(`the position is not saved (${this.#key}), so messages will come again: ${error}`);
      this.#isWarned = true;
    }
  }

  /**
   * Has the message with this `mid` come already?
   * @param {string} mid
   */
  isRepeat(mid) {
    if (this.#mids.has(mid)) {
      this.repeats += 1;
      return true;
    }
    this.#mids.add(mid);
    if (this.#mids.size > MIDS_MAX) {
      const [oldest] = this.#mids;
      this.#mids.delete(oldest);
    }
    return false;
  }
}

/**
 * The marks among a client's notifications. What has the same place is one, so that they are no more than the
 * notifications that wait, and one.
 */
export class Marks {
  /** @type {Mark[]} */
  #marks = []; // by their places

  get length() {
    return this.#marks.length;
  }

  /**
   * Behind all that have come.
   * @param {Mark} mark
   */
  add(mark) {
    const last = this.#marks.at(-1);
    if (last !== undefined && last.after >= mark.after) join(last, mark);
    else this.#marks.push(mark);
  }

  /**
   * Before all others: what was due has not been told, or is told next.
   * @param {Mark} mark
   */
  addFirst(mark) {
    const first = this.#marks[0];
    // A position that comes later covers the one before; a gap is told with the other one.
    if (first !== undefined && first.after <= mark.after) this.#marks[0] = join(mark, first);
    else this.#marks.unshift(mark);
  }

  /**
   * The next that is due when so many notifications have been taken; it is gone then.
   * @param {number} taken
   * @returns {Mark | undefined}
   */
  take(taken) {
    const first = this.#marks[0];
    return first !== undefined && first.after <= taken ? this.#marks.shift() : undefined;
  }
}

/**
 * @param {Mark} mark
 * @param {Mark} later With the same place.
 */
function join(mark, later) {
  if (later.position !== undefined) mark.position = later.position;
  if (later.gap !== undefined) mark.gap = mark.gap === undefined ? later.gap : both(mark.gap, later.gap);
  return mark;
}

/**
 * @param {Lacking} one
 * @param {Lacking} other
 * @returns {Lacking}
 */
function both(one, other) {
  if (one === null || other === null) return null;
  const topics = new Set([...one.topics, ...other.topics]);
  return topics.size > GAP_TOPICS_MAX ? null : { topics, slots: new Set([...one.slots, ...other.slots]) };
}

/**
 * A message that is neither a notification nor a reply: a gap, a position, or both. `Garbage`: it is none of these.
 * @param {Record<string, any>} message
 * @returns {{ gap?: Lacking, position?: string }}
 */
export function markOf(message) {
  const { position, gap } = message;
  if (gap === undefined && isPosition(position)) return { position };
  if (position !== undefined && !isPosition(position)) throw new Garbage("the endpoint sent what is no position");
  const lacking = lackingOf(gap);
  return position === undefined ? { gap: lacking } : { gap: lacking, position };
}

/**
 * @param {any} gap
 * @returns {Lacking}
 */
function lackingOf(gap) {
  if (gap === null) return null;
  const topics = gap?.topics ?? [];
  const slots = gap?.slots ?? [];
  if (
    typeof gap !== "object" ||
    !(Array.isArray(topics) && topics.every((topic) => typeof topic === "string")) ||
    !(Array.isArray(slots) && slots.every((slot) => Number.isInteger(slot) && slot >= 0 && slot < GROUPS))
  ) {
    throw new Garbage("the endpoint sent what is no message");
  }
  return topics.length > GAP_TOPICS_MAX ? null : { topics: new Set(topics), slots: new Set(slots) };
}

/**
 * The topics of this gap, of the client's own where it names slots. `topicsOf` gives these, some perhaps twice; it is
 * asked only then.
 * @param {Lacking} gap
 * @param {() => AsyncIterable<string>} topicsOf
 * @returns {Promise<string[] | null>} null: any.
 */
export async function topicsLacking(gap, topicsOf) {
  if (gap === null) return null;
  const topics = new Set(gap.topics);
  if (gap.slots.size > 0) {
    for await (const topic of topicsOf()) {
      if (gap.slots.has(slotOf(topic))) topics.add(topic);
      if (topics.size > GAP_TOPICS_MAX) return null;
    }
  }
  return [...topics];
}
