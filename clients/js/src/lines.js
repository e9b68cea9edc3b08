/**
 * Several commands or notifications in one message, with one JSON object per line. SPEC section 1.6.
 *
 * Owns: joining several messages into one, and splitting one into several. Must never: look into a line, do I/O, or
 * decide when to send.
 */

import { utf8Bytes } from "./text.js";

/** The WebSocket subprotocol. */
export const LINES = "ingeborg.lines";

/** Maximum number of bytes of a joined message. A longer message is a single command or notification. */
export const LINES_BYTES_MAX = 1 << 20;

/**
 * Return the lines of a message. A line feed may end the last line.
 * @param {string} message
 * @returns {string[]}
 */
export function linesOf(message) {
  if (!message.includes("\n") || utf8Bytes(message) > LINES_BYTES_MAX) return [message];
  const lines = message.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Joins messages that leave at the same moment into as few as possible, in their order. */
export class Together {
  /** @type {string[]} */
  #lines = [];
  /** Number of bytes that wait for `flush`: at most the limit of a message, or one command. */
  size = 0;
  #send;

  /** @param {(message: string) => void} send Called by `add` when no further line fits, and by `flush`. */
  constructor(send) {
    this.#send = send;
  }

  /** @param {string} line Without a line feed, like everything that `JSON.stringify` makes. */
  add(line) {
    const bytes = utf8Bytes(line);
    if (this.size + bytes > LINES_BYTES_MAX) this.flush();
    this.#lines.push(line);
    this.size += bytes + 1; // its line feed
  }

  /** Send the waiting lines, because the moment is over. */
  flush() {
    if (this.#lines.length === 0) return;
    const message = this.#lines.join("\n");
    this.#lines = [];
    this.size = 0;
    this.#send(message);
  }
}
