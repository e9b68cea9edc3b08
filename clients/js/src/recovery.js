/**
 * How a client gets the messages that it has missed, and learns of gaps. SPEC sections 8.10 and 9.
 *
 * Owns: the position, where it is saved, the messages already received, and the gaps to report, each at its place among
 * the notifications. Must never: know a connection, or call the program's handlers.
 *
 * A position covers everything that came before it. A position is *received* when it arrives. It is *reached* when the
 * program has processed everything before it. The client saves only reached positions.
 */

import { isPosition } from "./history.js";
import { Garbage } from "./replies.js";
import { GROUPS, slotOf } from "./requests.js";

/**
 * The client notices repetitions of this many of the latest messages. Only messages that are on their way at the moment
 * of a failure can arrive twice.
 */
export const MIDS_MAX = 10_000;

/** Maximum number of topics that a gap names. With more, it reports "any topic". */
export const GAP_TOPICS_MAX = 10_000;

/**
 * A place to save a position, such as `localStorage`.
 * @typedef {Pick<Storage, "getItem" | "setItem">} Saving
 */

/**
 * Topics whose retained messages may be missing.
 * @typedef {object} Gap
 * @property {string[] | null} topics Topics of this client. null: any of its topics.
 */

/**
 * A gap as the endpoint describes it, or null for any topic.
 * @typedef {{ topics: Set<string>, slots: Set<number> } | null} Lacking
 */

/**
 * A gap to report, or a position to reach, after this many (`after`) notifications.
 * @typedef {object} Mark
 * @property {number} after
 * @property {Lacking} [gap]
 * @property {string} [position]
 */

/**
 * Return the recovery for the option `recover`. Throws a `TypeError` if there is no place to save a position.
 * @param {boolean | string | { key: string }} recover
 * @returns {Recovery | null} null if the option does not request a recovery.
 */
export function recoveryOf(recover) {
  if (recover === false) return null;
  if (typeof recover !== "object") return new Recovery(recover);
  let storage;
  try {
    storage = globalThis.localStorage;
    storage.getItem(recover.key);
  } catch (error) {
    throw new TypeError("recover: { key } needs localStorage, which is missing here: give a position instead", {
      cause: error,
    });
  }
  return new Recovery(recover, storage);
}

/** The recovery of one client. */
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

  /** Number of messages that arrived a second time, and were dropped. */
  repeats = 0;

  /**
   * @param {true | string | { key: string }} recover true, a position, or the key of a saved position.
   * @param {Saving} [storage] Where to save positions, if `recover` has a key.
   */
  constructor(recover, storage) {
    this.#storage = storage;
    this.#key = typeof recover === "object" ? recover.key : null;
    /** @type {unknown} */
    const first = typeof recover === "object" ? storage?.getItem(recover.key) : recover;
    if (isPosition(first)) this.#received = this.#reached = first;
    else if (first !== true && first !== null) this.#isGapDue = true; // the saved text is not a position
  }

  /** The position that the program has reached, or null if none is known yet. */
  get position() {
    return this.#reached;
  }

  /**
   * The position received last. It covers the messages up to the end of the program's queue. The client can have missed
   * later messages.
   */
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
   * Note that the client listens, and knows which subscriptions have ended. Returns whether to report a gap: without a
   * position, nobody knows which messages the client has missed since it last listened.
   * @returns {boolean}
   */
  listens() {
    const isGap = this.#isGapDue;
    this.#isListening = this.#hasListened = true;
    this.#isGapDue = false;
    return isGap;
  }

  /** Note that the client no longer listens. */
  left() {
    this.#isListening = false;
    if (this.#hasListened && this.#received === null) this.#isGapDue = true;
    this.#held = null;
  }

  /**
   * Note a received position.
   * @param {string} position
   */
  receive(position) {
    this.#received = position;
  }

  /**
   * Hold a position that arrives while some subscriptions of this client have ended. It does not cover the topics of
   * these subscriptions until the client has renewed them and received their missed messages.
   * @param {string} position
   */
  hold(position) {
    this.#held = position;
  }

  /** @returns {string | null} The latest held position, which now counts. */
  release() {
    const held = this.#held;
    this.#held = null;
    return held;
  }

  /**
   * Note that the program has processed everything before this position.
   * @param {string} position
   */
  reach(position) {
    if (position === this.#reached) return;
    this.#reached = position;
    if (this.#key === null) return;
    try {
      /** @type {Saving} */ (this.#storage).setItem(this.#key, position);
    } catch (error) {
      if (!this.#isWarned) console.warn(`cannot save position ${this.#key}, so messages will arrive again: ${error}`);
      this.#isWarned = true;
    }
  }

  /** Return whether the message with this `mid` has arrived before.
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
 * The marks among a client's notifications. Marks at the same place are merged. So there is at most one mark more than
 * there are waiting notifications.
 */
export class Marks {
  /** @type {Mark[]} */
  #marks = []; // in the order of their places

  get length() {
    return this.#marks.length;
  }

  /** Add a mark after everything that has arrived.
   * @param {Mark} mark
   */
  add(mark) {
    const last = this.#marks.at(-1);
    if (last !== undefined && last.after >= mark.after) join(last, mark);
    else this.#marks.push(mark);
  }

  /**
   * Add a mark before all others. If the first mark is at the same place or earlier, the two are merged.
   * @param {Mark} mark
   */
  addFirst(mark) {
    const first = this.#marks[0];
    // A later position covers an earlier one; gaps are merged.
    if (first !== undefined && first.after <= mark.after) this.#marks[0] = join(mark, first);
    else this.#marks.unshift(mark);
  }

  /**
   * Remove and return the next mark that is due after this many notifications.
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
 * @param {Mark} later A mark at the same place.
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
 * Read a message that is neither a notification nor a reply: a gap, a position, or both. Throws `Garbage` if it is none
 * of these.
 * @param {Record<string, any>} message
 * @returns {{ gap?: Lacking, position?: string }}
 */
export function markOf(message) {
  const { position, gap } = message;
  if (gap === undefined && isPosition(position)) return { position };
  if (position !== undefined && !isPosition(position)) throw new Garbage("the endpoint sent an invalid position");
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
    throw new Garbage("the endpoint sent an invalid message");
  }
  return topics.length > GAP_TOPICS_MAX ? null : { topics: new Set(topics), slots: new Set(slots) };
}

/**
 * Return the topics of this gap. If the gap names slots, these include the client's own topics in these slots. Only in
 * this case, the function calls `topicsOf`, which yields the client's topics. A topic can occur twice.
 * @param {Lacking} gap
 * @param {() => AsyncIterable<string>} topicsOf
 * @returns {Promise<string[] | null>} null: any topic.
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
