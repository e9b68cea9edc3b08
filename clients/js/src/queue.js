/**
 * Notifications that wait for the program.
 *
 * Owns: their order and their number. Must never: grow beyond its limit unless told to, or drop one without saying so.
 */

/**
 * Listing 4.7 of the protocol: what was published.
 * @typedef {object} Notification
 * @property {string | null} key The topic; null: from the `broadcast` command.
 * @property {any} broadcast The payload, a JSON value.
 * @property {string} [mid] What names the message for good, where the endpoint says it: for a client that recovers, and
 *   with a kept message.
 * @property {boolean} [kept] true: it comes from what was kept, since it had been missed, or was asked for.
 */

/** A queue whose both ends cost the same, however long it is. */
export class NotificationQueue {
  /** @type {(Notification | undefined)[]} */
  #waiting = [];
  #first = 0;
  #pushed = 0;

  get length() {
    return this.#waiting.length - this.#first;
  }

  /** How many there have been. */
  get pushed() {
    return this.#pushed;
  }

  /** How many of them are gone. */
  get taken() {
    return this.#pushed - this.length;
  }

  /** @param {Notification} notification */
  push(notification) {
    this.#waiting.push(notification);
    this.#pushed += 1;
  }

  /** @returns {Notification | undefined} The oldest, which is then gone. */
  shift() {
    if (this.length === 0) return undefined;
    const oldest = this.#waiting[this.#first];
    this.#waiting[this.#first++] = undefined;
    // Half of it is holes: moving the rest costs no more than what was taken since the last time.
    if (this.#first > 32 && this.#first * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#first);
      this.#first = 0;
    }
    return oldest;
  }
}
