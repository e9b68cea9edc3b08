/**
 * Several commands or notifications in one message, one JSON object a line. SPEC section 1.6.
 *
 * Owns: how messages are put together into one, and how one is taken apart. Must never: look into a line, do I/O, or
 * decide when it is time to send.
 */

import { utf8Bytes } from "./text.js";

/** The WebSocket subprotocol. */
export const LINES = "ingeborg.lines";

/** A longer message is one command, or one notification, whatever is in it. */
export const LINES_BYTES_MAX = 1 << 20;

/**
 * The lines of a message. A line feed may end the last one.
 * @param {string} message
 * @returns {string[]}
 */
export function linesOf(message) {
  if (!message.includes("\n") || utf8Bytes(message) > LINES_BYTES_MAX) return [message];
  const lines = message.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Messages that are to be sent at the same moment: as few as may be are made of them, in their order. */
export class Together {
  /** @type {string[]} */
  #lines = [];
  /** Bytes that wait for `flush`; never more than a message may have, or one command. */
  size = 0;
  #send;

  /** @param {(message: string) => void} send Is called whenever no more fits, and by `flush`. */
  constructor(send) {
    this.#send = send;
  }

  /** @param {string} line Without a line feed, as everything is that `JSON.stringify` makes. */
  add(line) {
    const bytes = utf8Bytes(line);
    if (this.size + bytes > LINES_BYTES_MAX) this.flush();
    this.#lines.push(line);
    this.size += bytes + 1; // its line feed
  }

  /** The moment is over. */
  flush() {
    if (this.#lines.length === 0) return;
    const message = this.#lines.join("\n");
    this.#lines = [];
    this.size = 0;
    this.#send(message);
  }
}
