/**
 * All refusals of the broker, and all failures of the client. SPEC sections 5 and 6.
 *
 * Owns: the two tables, and the classes of errors. Must never: know which code throws an error.
 */

/**
 * The remedy after an error: `retry` later, with backoff; `fix` the command, which fails again if unchanged; `give_up`.
 * @typedef {"retry" | "fix" | "give_up"} Next
 */

/** Error codes of replies, and the remedy for each. @type {Readonly<Record<string, Next>>} */
export const ERRORS = Object.freeze({
  bad_json: "fix",
  bad_command: "fix",
  bad_state: "fix",
  bad_topic: "fix",
  bad_filter: "fix",
  too_large: "fix",
  too_many_topics: "fix",
  unauthorized: "fix",
  forbidden: "fix",
  conflict: "fix",
  store_unavailable: "retry",
  peer_unavailable: "retry",
  partial: "give_up",
  internal: "give_up",
});

/** Close codes after which connecting again is useless or harmful. @type {Readonly<Record<number, string>>} */
export const CLOSED_FOR_GOOD = Object.freeze({
  1008: "policy violation",
  4001: "replaced by a newer listen of this client",
  4006: "the token has been revoked",
});

/** The base of all errors of this library. An aborted command rejects with its signal's reason instead. */
export class IngeborgError extends Error {
  /**
   * @param {string} code
   * @param {Next} next
   * @param {string} message
   * @param {ErrorOptions} [options]
   */
  constructor(code, next, message, options) {
    super(message, options);
    this.name = new.target.name;
    /** One word for programs: a code of the protocol, or a code of this library. */
    this.code = code;
    /** The remedy. */
    this.next = next;
  }
}

/**
 * A command got an error reply, or would have got one: the client's own checks refuse a command with the endpoint's
 * codes before the client sends anything. A code that this version does not know means `give_up`.
 */
export class ProtocolError extends IngeborgError {
  /**
   * @param {string} code
   * @param {string} info
   * @param {Record<string, unknown>} [extra]
   */
  constructor(code, info, extra = {}) {
    super(code, Object.hasOwn(ERRORS, code) ? ERRORS[code] : "give_up", `${code}: ${info}`);
    /** Which field is wrong and why, or what failed. */
    this.info = info;
    /** Further fields of the reply (`partial`: delivered, failed). */
    this.extra = extra;
  }
}

/**
 * No endpoint of the list accepted a connection. The text has the reason of each endpoint. `code`: `connect_failed`.
 */
export class ConnectFailed extends IngeborgError {
  /** @param {string} message */
  constructor(message) {
    super("connect_failed", "retry", message);
  }
}

/**
 * The connection broke before the reply arrived, so it is unknown whether the command took effect. `code`:
 * `connection_lost`. `next` is `give_up`, because the client has already repeated the command if that is safe.
 */
export class ConnectionLost extends IngeborgError {
  /**
   * @param {string} message
   * @param {number | null} [closeCode]
   */
  constructor(message, closeCode = null) {
    super("connection_lost", "give_up", message);
    /** The endpoint's close code (SPEC section 6), or null if the endpoint gave none. */
    this.closeCode = closeCode;
  }
}

/** There was no reply or no connection in time, so it is unknown whether the command took effect. `code`: `timeout`. */
export class CommandTimeout extends IngeborgError {
  /**
   * @param {string} message
   * @param {ErrorOptions} [options]
   */
  constructor(message, options) {
    super("timeout", "retry", message, options);
  }
}

/** The endpoint closed with a code that forbids reconnecting, or `close` was called (1000). `code`: `closed`. */
export class ClosedForGood extends IngeborgError {
  /**
   * @param {number} closeCode
   * @param {string} reason
   */
  constructor(closeCode, reason) {
    super("closed", "give_up", `connection closed, code ${closeCode}: ${reason}`);
    /** The close code, SPEC section 6. */
    this.closeCode = closeCode;
    this.reason = reason;
  }
}

/**
 * An attempt to connect to one endpoint failed. The next attempt may succeed. `code`: `unreachable`. `onUnreachable`
 * gets this error.
 */
export class Unreachable extends IngeborgError {
  /**
   * @param {string} message
   * @param {ErrorOptions} [options]
   */
  constructor(message, options) {
    super("unreachable", "retry", message, options);
  }
}
