/**
 * The credit that opens a window again: how many notifications of a connection the program has processed. SPEC section
 * 2.8.
 *
 * Owns: a connection's counts, and when the client confirms them. Must never: know a connection, or confirm a
 * notification that still waits for the program.
 */

/** The client confirms a processed notification after this many milliseconds at the latest, even if there are few. */
export const IDLE_MS = 100;

/** The credit of one client, which has one connection at a time. */
export class Credit {
  #batch;
  #send;
  #received = 0;
  #processed = 0;
  #confirmed = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idle;

  /**
   * @param {number} window
   * @param {(count: number) => void} send Confirms the connection's first `count` notifications as processed.
   */
  constructor(window, send) {
    this.#batch = Math.max(Math.floor(window / 2), 1); // meanwhile, the other half is on its way
    this.#send = send;
  }

  /** Begin with another connection. Notifications of earlier connections do not count. */
  begin() {
    this.stop();
    this.#received = this.#processed = this.#confirmed = 0;
  }

  /** Count a notification that has arrived. */
  receive() {
    this.#received += 1;
  }

  /**
   * Note that the program has processed all notifications except the latest `waiting`. Notifications of an earlier
   * connection leave the queue first, so they can only delay a confirmation.
   * @param {number} waiting
   */
  update(waiting) {
    this.#processed = Math.max(this.#received - waiting, this.#processed);
    const due = this.#processed - this.#confirmed;
    if (due >= this.#batch) this.#confirm();
    else if (due > 0) this.#idle ??= setTimeout(() => this.#confirm(), IDLE_MS);
  }

  /** Confirm nothing more. */
  stop() {
    clearTimeout(this.#idle);
    this.#idle = undefined;
  }

  #confirm() {
    this.stop();
    this.#confirmed = this.#processed;
    this.#send(this.#confirmed);
  }
}
