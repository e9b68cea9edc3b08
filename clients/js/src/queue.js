/**
 * Notifications that wait for the program.
 *
 * Owns: the order and the number of these notifications. Must never: drop a notification. The inbox enforces the limit.
 */

/**
 * Listing 4.7 of the protocol: a published message.
 * @typedef {object} Notification
 * @property {string | null} key The topic, or null for a message of the `broadcast` command.
 * @property {any} broadcast The payload, a JSON value.
 * @property {number} skipped The number of earlier messages that bounds left out because this message replaces them
 *   (SPEC section 2.8).
 * @property {string} [mid] The message's permanent name. The endpoint gives it to a client that recovers, and with each
 *   retained message.
 * @property {boolean} [kept] true for a retained message that the client had missed, or requested.
 */

/** A queue that adds and removes at the same cost, at any length. */
export class NotificationQueue {
  /** @type {(Notification | undefined)[]} */
  #waiting = [];
  #first = 0;
  #pushed = 0;

  get length() {
    return this.#waiting.length - this.#first;
  }

  /** Number of notifications ever added. */
  get pushed() {
    return this.#pushed;
  }

  /** Number of notifications removed. */
  get taken() {
    return this.#pushed - this.length;
  }

  /** @param {Notification} notification */
  push(notification) {
    this.#waiting.push(notification);
    this.#pushed += 1;
  }

  /** @returns {Notification | undefined} The oldest notification, which is removed from the queue. */
  shift() {
    if (this.length === 0) return undefined;
    const oldest = this.#waiting[this.#first];
    this.#waiting[this.#first++] = undefined;
    // Half of the array is holes. Moving the rest costs no more than the removals since the last move.
    if (this.#first > 32 && this.#first * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#first);
      this.#first = 0;
    }
    return oldest;
  }
}
