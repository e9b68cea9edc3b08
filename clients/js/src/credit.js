/**
 * The credit that opens a window again: how many notifications of a connection the program has processed. SPEC section
 * 2.8.
 *
 * Owns: the connection's counts, and when it confirms them. Must never: know a connection, or confirm a notification
 * that still waits for the program.
 */

/** A processed notification is confirmed after this time at the latest, in milliseconds, however few there are. */
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
    this.#batch = Math.max(Math.floor(window / 2), 1); // the other half is on its way meanwhile
    this.#send = send;
  }

  /** Begin with another connection: what has come before does not count. */
  begin() {
    this.stop();
    this.#received = this.#processed = this.#confirmed = 0;
  }

  /** A notification has come. */
  receive() {
    this.#received += 1;
  }

  /**
   * The program has processed everything but the latest `waiting` notifications. Those of an earlier connection leave
   * the queue first, so they can only delay a confirmation.
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
