/**
 * Notifications that wait for the program.
 *
 * Owns: their order and their number. Must never: grow beyond its limit unless told to, or drop one silently.
 */

/**
 * Listing 4.7 of the protocol: a published message.
 * @typedef {object} Notification
 * @property {string | null} key The topic; null: from the `broadcast` command.
 * @property {any} broadcast The payload, a JSON value.
 * @property {number} skipped How many earlier messages it stands for, which bounds left out (SPEC section 2.8).
 * @property {string} [mid] The message's permanent name, if the endpoint gives it: to a client that recovers, and with
 *   a retained message.
 * @property {boolean} [kept] true: it is a retained message that the client had missed, or requested.
 */

/** A queue whose two ends cost the same at any length. */
export class NotificationQueue {
  /** @type {(Notification | undefined)[]} */
  #waiting = [];
  #first = 0;
  #pushed = 0;

  get length() {
    return this.#waiting.length - this.#first;
  }

  /** The number ever queued. */
  get pushed() {
    return this.#pushed;
  }

  /** The number removed. */
  get taken() {
    return this.#pushed - this.length;
  }

  /** @param {Notification} notification */
  push(notification) {
    this.#waiting.push(notification);
    this.#pushed += 1;
  }

  /** @returns {Notification | undefined} The oldest, removed from the queue. */
  shift() {
    if (this.length === 0) return undefined;
    const oldest = this.#waiting[this.#first];
    this.#waiting[this.#first++] = undefined;
    // Half of the array is holes: moving the rest costs no more than the removals since the last time.
    if (this.#first > 32 && this.#first * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#first);
      this.#first = 0;
    }
    return oldest;
  }
}
