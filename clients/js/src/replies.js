/**
 * Which command a reply belongs to, and the errors that belong to none. SPEC section 9.
 *
 * Owns: the numbers of commands, those that wait for their replies, and the record of errors that nobody waited for. Must
 * never: send anything, or know what a command says.
 */

import { errorOf } from "./requests.js";
import { deferred } from "./waiting.js";

/** @import { ProtocolError } from "./errors.js" */

/** Errors of unacknowledged publishes that are kept to be looked at; all are counted. */
const ERRORS_KEPT_MAX = 1_000;
/** Error codes counted one by one: what is sent as a code is the other side's affair. */
const CODES_MAX = 100;

/** The endpoint sent a message that is not of this protocol. */
export class Garbage extends Error {}

/** One client's. `onError`: told of each error that no command waits for. */
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

  /** Replies to commands that nobody waited for any more. */
  get late() {
    return this.#late;
  }

  /** The latest errors that no command waited for, 1,000 at most. */
  get errors() {
    return [...this.#errors];
  }

  /** All of them, by code. */
  get errorCounts() {
    return new Map(this.#errorCounts);
  }

  /**
   * Another command: its number, and the promise of its reply. It waits until it is forgotten.
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
   * Nobody waits for its reply any more.
   * @param {number} id
   */
  forget(id) {
    this.#pending.delete(id);
  }

  /**
   * None of those that wait will have a reply.
   * @param {Error} error
   */
  fail(error) {
    for (const waiting of this.#pending.values()) waiting.reject(error);
  }

  /**
   * A reply has come. `Garbage`: it is none.
   * @param {Record<string, any>} reply
   */
  settle(reply) {
    const error = "error" in reply ? errorOf(reply) : null;
    if (error === null && reply.result !== "success") throw new Garbage("the endpoint sent what is no message");
    if (typeof reply.id === "number") {
      if (!Number.isInteger(reply.id) || reply.id < 1 || reply.id > this.#number) {
        throw new Garbage(`the endpoint sent a reply to ${reply.id}, which was never asked`);
      }
      const waiting = this.#pending.get(reply.id);
      this.#pending.delete(reply.id); // now, for an answer given twice may be in the same chunk
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
   * An error that no command waits for.
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
