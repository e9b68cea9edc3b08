/**
 * Matches replies to commands, and records the errors that belong to no command. SPEC section 9.
 *
 * Owns: the commands' numbers, the commands that wait for replies, and the record of other errors. Must never: send
 * anything, or know a command's content.
 */

import { errorOf } from "./requests.js";
import { deferred } from "./waiting.js";

/** @import { ProtocolError } from "./errors.js" */

/** Maximum number of errors of unacknowledged publishes that are kept for inspection. All errors are counted. */
const ERRORS_KEPT_MAX = 1_000;
/** Maximum number of error codes that are counted separately, because the endpoint chooses the codes. */
const CODES_MAX = 100;

/** The endpoint sent a message that is not of this protocol. */
export class Garbage extends Error {}

/** The replies of one client. `onError` gets each error that no command waits for. */
export class Replies {
  #number = 0;
  /** @type {Map<number, { resolve: (reply: Record<string, any>) => void, reject: (error: unknown) => void }>} */
  #pending = new Map();
  #onError;
  #late = 0;
  /** @type {ProtocolError[]} */
  #errors = [];
  /** @type {Map<string, number>} */
  #errorCounts = new Map();

  /** @param {(error: ProtocolError) => void} onError */
  constructor(onError) {
    this.#onError = onError;
  }

  /** Number of replies that arrived after their commands had stopped waiting. */
  get late() {
    return this.#late;
  }

  /** The latest errors that no command waited for, 1,000 at most. */
  get errors() {
    return [...this.#errors];
  }

  /** The number of all these errors, by code. */
  get errorCounts() {
    return new Map(this.#errorCounts);
  }

  /**
   * Add a command. Returns its number, and the promise of its reply. The command waits until you call `forget`.
   * @returns {{ id: number, promise: Promise<Record<string, any>> }}
   */
  expect() {
    const id = ++this.#number;
    /** @type {ReturnType<typeof deferred<Record<string, any>>>} */
    const reply = deferred();
    this.#pending.set(id, reply);
    return { id, promise: reply.promise };
  }

  /**
   * Stop waiting for the reply to this command.
   * @param {number} id
   */
  forget(id) {
    this.#pending.delete(id);
  }

  /**
   * Reject all waiting commands, because no reply will arrive.
   * @param {Error} error
   */
  fail(error) {
    for (const waiting of this.#pending.values()) waiting.reject(error);
  }

  /**
   * Process a reply. Throws `Garbage` if it is not a valid reply.
   * @param {Record<string, any>} reply
   */
  settle(reply) {
    const error = "error" in reply ? errorOf(reply) : null;
    if (error === null && reply.result !== "success") throw new Garbage("the endpoint sent an invalid message");
    if (typeof reply.id === "number") {
      if (!Number.isInteger(reply.id) || reply.id < 1 || reply.id > this.#number) {
        throw new Garbage(`the endpoint sent a reply to ${reply.id}, which the client never sent`);
      }
      const waiting = this.#pending.get(reply.id);
      this.#pending.delete(reply.id); // now: a second answer may be in the same chunk
      if (waiting === undefined) this.#late += 1;
      else if (error !== null) waiting.reject(error);
      else waiting.resolve(reply);
    } else if (error !== null) {
      this.note(error);
    } else {
      throw new Garbage("the endpoint sent a success that belongs to no command");
    }
  }

  /**
   * Record an error that no command waits for.
   * @param {ProtocolError} error
   */
  note(error) {
    this.#errors.push(error);
    if (this.#errors.length > ERRORS_KEPT_MAX) this.#errors.shift();
    const known = this.#errorCounts.has(error.code) || this.#errorCounts.size < CODES_MAX;
    const code = known ? error.code : "other";
    this.#errorCounts.set(code, (this.#errorCounts.get(code) ?? 0) + 1);
    this.#onError(error);
  }
}
