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
 */

/** A queue whose both ends cost the same, however long it is. */
export class NotificationQueue {
  /** @type {(Notification | undefined)[]} */
  #waiting = [];
  #first = 0;

  get length() {
    return this.#waiting.length - this.#first;
  }

  /** @param {Notification} notification */
  push(notification) {
    this.#waiting.push(notification);
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
