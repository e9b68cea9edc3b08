/**
 * Input for the program: notifications, gaps and positions, handed over in order. SPEC section 9.
 *
 * Owns: the queue, its limit, the iteration, and which handler is running. Must never: know a connection, hand over a
 * later item before the program has processed the earlier ones, or drop a notification without counting and reporting
 * it.
 */

import { ClosedForGood, CommandTimeout } from "./errors.js";
import { NotificationQueue } from "./queue.js";
import { Marks, topicsLacking } from "./recovery.js";
import { Bell } from "./waiting.js";

/** @import { Credit } from "./credit.js" */
/** @import { ClientOptions } from "./options.js" */
/** @import { Notification } from "./queue.js" */
/** @import { Lacking, Mark, Recovery } from "./recovery.js" */

/**
 * @typedef {object} Receiver What the client of the inbox provides.
 * @property {() => Error | null} ended Returns the error that ended the client, or null.
 * @property {() => boolean} isOver Returns whether the inbox must hand over nothing more, because the program closed
 *   the client or a handler has failed.
 * @property {(call: () => void) => void} tell Call a handler. If the handler throws an error, the client ends.
 * @property {(error: unknown) => void} fail Report that a handler has failed.
 * @property {() => void} goOn Resume reading, if reading has stopped.
 * @property {(signal: AbortSignal) => AsyncIterable<string>} topics Yields the client's own topics. A topic can occur
 *   twice.
 */

/** @typedef {Pick<ClientOptions, "onNotification" | "onDropped" | "onGap">} Handlers */

/** The inbox of one client. */
export class Inbox {
  #receiver;
  #recovery;
  #credit;
  #options;
  #queue = new NotificationQueue();
  #marks = new Marks();
  #arrived = new Bell();
  #iterating = false;
  #handling = false; // an async handler is running
  #inHand = 0; // notifications that the program is processing: one at most
  /** @type {AbortController | null} */
  #mapping = null; // aborts the lookup of a gap's topics

  /** Number of notifications dropped because the queue was full. */
  dropped = 0;

  /**
   * @param {Handlers & { queueMax: number, overflow: "drop_oldest" | "pause" }} options
   * @param {Recovery | null} recovery
   * @param {Credit | null} credit
   * @param {Receiver} receiver
   */
  constructor(options, recovery, credit, receiver) {
    this.#options = options;
    this.#recovery = recovery;
    this.#credit = credit;
    this.#receiver = receiver;
  }

  /** Number of waiting notifications. */
  get length() {
    return this.#queue.length;
  }

  /** Whether reading should stop for now. */
  get isFull() {
    return this.#options.overflow === "pause" && this.#queue.length >= this.#options.queueMax;
  }

  /** Note that reading stops, so that no reply can arrive for which the inbox waits. */
  paused() {
    this.#mapping?.abort();
  }

  /** Note that the client has ended, and wake the iteration. */
  ended() {
    this.#mapping?.abort();
    this.#arrived.ring();
  }

  /** @param {Notification} notification */
  put(notification) {
    this.#credit?.receive();
    this.#accept(notification);
    this.#confirm();
  }

  /** @param {Notification} notification */
  #accept(notification) {
    const { mid } = notification;
    if (this.#recovery !== null && mid !== undefined && this.#recovery.isRepeat(mid)) return;
    if (this.#options.onNotification !== undefined && !this.#handling && this.#queue.length === 0) {
      this.#handle(notification);
      return;
    }
    this.#queue.push(notification);
    if (this.#queue.length > this.#options.queueMax && this.#options.overflow === "drop_oldest") this.#drop();
    this.#arrived.ring();
  }

  /**
   * Report the mark's gap, or reach its position, when the program has processed everything before the mark.
   * @param {Omit<Mark, "after">} mark
   */
  mark(mark) {
    this.#marks.add({ after: this.#queue.pushed, ...mark });
    if (this.#options.onNotification !== undefined) this.#handleWaiting();
    else this.#arrived.ring();
  }

  /**
   * See `Client.notifications`.
   * @param {AbortSignal | undefined} signal
   * @returns {AsyncGenerator<Notification, void, void>}
   */
  async *notifications(signal) {
    if (this.#iterating) throw new TypeError("one iteration at a time");
    this.#iterating = true;
    const never = new AbortController().signal;
    try {
      for (;;) {
        this.#processed();
        signal?.throwIfAborted();
        const mark = this.#marks.take(this.#queue.taken);
        if (mark !== undefined) {
          await this.#pass(mark).catch((error) => {
            this.#marks = new Marks(); // a failed program gets no more reports, and reaches no later position
            this.#receiver.fail(error);
          });
          continue;
        }
        const notification = this.#take();
        const ended = this.#receiver.ended();
        if (notification !== undefined) {
          this.#inHand = 1;
          yield notification;
        } else if (ended !== null) {
          if (ended instanceof ClosedForGood && ended.closeCode === 1000) return;
          throw ended;
        } else {
          await this.#arrived.wait(signal ?? never);
        }
      }
    } finally {
      this.#iterating = false;
    }
  }

  /** Note that the program has processed the notification that it had in hand. */
  #processed() {
    this.#inHand = 0;
    this.#confirm();
  }

  #confirm() {
    if (this.#receiver.ended() === null) this.#credit?.update(this.#queue.length + this.#inHand);
  }

  #take() {
    const notification = this.#queue.shift();
    // Reading resumes only when the queue is half empty. Otherwise, pausing and resuming would alternate with every
    // message.
    if (this.#queue.length <= this.#options.queueMax / 2) this.#receiver.goOn();
    return notification;
  }

  #drop() {
    const oldest = /** @type {Notification} */ (this.#queue.shift());
    this.dropped += 1;
    if (this.#recovery !== null && oldest.key !== null) {
      // A later position counts this message as received, so no recovery brings it again.
      const gap = { topics: new Set([oldest.key]), slots: new Set() };
      this.#marks.addFirst({ after: this.#queue.taken, gap });
    }
    this.#receiver.tell(() => this.#options.onDropped?.(oldest, this.dropped));
  }

  /** @param {Notification} notification */
  #handle(notification) {
    if (this.#receiver.isOver()) return;
    this.#receiver.tell(() => {
      const promise = this.#options.onNotification?.(notification.key, notification.broadcast, notification);
      if (typeof promise?.then !== "function") return;
      this.#inHand = 1;
      this.#wait(promise);
    });
  }

  #handleWaiting() {
    while (!this.#handling && !this.#receiver.isOver()) {
      const mark = this.#marks.take(this.#queue.taken);
      if (mark === undefined) {
        const notification = this.#take();
        if (notification === undefined) return;
        this.#handle(notification);
      } else if (mark.gap === undefined) {
        this.#reach(mark);
      } else {
        this.#wait(this.#pass(mark));
      }
    }
  }

  /**
   * Let later items wait until the handler's promise settles.
   * @param {PromiseLike<void>} promise
   */
  #wait(promise) {
    this.#handling = true;
    promise.then(
      () => {
        this.#handling = false;
        this.#inHand = 0;
        this.#handleWaiting();
        this.#confirm();
      },
      (error) => this.#receiver.fail(error),
    );
  }

  /**
   * Handle a mark, after the program has processed everything before it. Rejects with an error of `onGap`.
   * @param {Mark} mark
   */
  async #pass(mark) {
    if (mark.gap !== undefined) {
      const { onGap } = this.#options;
      const topics = await this.#topicsLacking(mark.gap);
      if (onGap !== undefined) await onGap({ topics });
      else console.warn(`messages of ${topics === null ? "any topic" : topics.join(", ")} may be missing: see onGap`);
    }
    this.#reach(mark);
  }

  /** @param {Mark} mark */
  #reach({ position }) {
    if (position !== undefined) this.#recovery?.reach(position);
  }

  /**
   * @param {Lacking} gap
   * @returns {Promise<string[] | null>} null: any topic. This is also the result if the client's topics are unavailable
   *   now.
   */
  async #topicsLacking(gap) {
    const mapping = (this.#mapping = new AbortController());
    try {
      return await topicsLacking(gap, () => this.#topics(mapping.signal));
    } catch {
      return null; // never report a gap as smaller than it is
    } finally {
      this.#mapping = null;
    }
  }

  /** @param {AbortSignal} signal */
  #topics(signal) {
    if (this.isFull) throw new CommandTimeout("the client has stopped reading");
    return this.#receiver.topics(signal);
  }
}
