/**
 * The client's side of the wire: the text of commands, and the meaning of replies. SPEC sections 2, 5 and 9.
 *
 * Owns: writing commands, cutting batches to the message limit, and reading error replies. Must never: do I/O.
 *
 * A command's *body* is its text without its `id` and the closing brace. So the client can send the command again under
 * another id, without a second encoding.
 */

import { ProtocolError } from "./errors.js";
import { checkTopic, json, utf8Bytes } from "./text.js";

/** Room for the id and the braces around a body, and for the other fields of a command with a batch of topics. */
const ENVELOPE_BYTES = 1024;

/** Topics that a store can keep together have the same CRC-32 modulo this. */
export const GROUPS = 4096;

const ENCODER = new TextEncoder();

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit++) rest = rest & 1 ? 0xedb88320 ^ (rest >>> 1) : rest >>> 1;
  return rest;
});

/**
 * Return the CRC-32 (ISO-HDLC, as in zlib), as an unsigned integer.
 * @param {Uint8Array} bytes
 * @returns {number}
 */
export function crc32(bytes) {
  let rest = 0xffffffff;
  for (const byte of bytes) rest = CRC_TABLE[(rest ^ byte) & 0xff] ^ (rest >>> 8);
  return (rest ^ 0xffffffff) >>> 0;
}

/** Keys for `dedup` that are unique everywhere. */
export class FreshKeys {
  #beginning = "";
  #number = 0;

  /** @returns {string} */
  next() {
    if (this.#beginning === "") {
      const parts = crypto.getRandomValues(new Uint32Array(3));
      this.#beginning = Array.from(parts, (part) => part.toString(36)).join("");
    }
    return `${this.#beginning}-${++this.#number}`;
  }
}

/**
 * Return one command's body. Throws `bad_json` if JSON cannot express a value, and `too_large` if the command is so
 * large that an endpoint would close the connection.
 * @param {string} command
 * @param {string | number} clientId
 * @param {Record<string, unknown>} fields
 * @param {number} frameBytesMax
 * @returns {string}
 */
export function body(command, clientId, fields, frameBytesMax) {
  let text = `{"command":"${command}","client_id":${json(clientId)}`;
  for (const [name, value] of Object.entries(fields)) text += `,"${name}":${json(value)}`;
  // A UTF-16 unit takes at most three bytes of UTF-8, so only large commands need counting.
  if (text.length * 3 + ENVELOPE_BYTES > frameBytesMax) {
    const bytesMax = utf8Bytes(text) + ENVELOPE_BYTES;
    if (bytesMax > frameBytesMax) {
      throw new ProtocolError("too_large", `The frame may have ${bytesMax} bytes; the limit is ${frameBytesMax}`);
    }
  }
  return text;
}

/**
 * Return the bodies of as many commands as the message limit requires. Throws `bad_topic` if any topic is invalid.
 *
 * If there are several commands, each command gets topics with neighbouring values of CRC-32 modulo 4,096. A store can
 * spread its objects over these values (SPEC section 9), and then writes each object once per command.
 * @param {string} command
 * @param {string | number} clientId
 * @param {readonly string[]} topics
 * @param {number} frameBytesMax
 * @param {Record<string, unknown>} [fields] The fields of each body.
 * @param {number} [topicsMax] Maximum number of topics in each body.
 * @returns {string[]}
 */
export function topicBodies(command, clientId, topics, frameBytesMax, fields = {}, topicsMax = Infinity) {
  for (const topic of topics) checkTopic(topic);
  if (topics.length > topicsMax) {
    const ordered = neighbours(topics);
    const starts = Array.from({ length: Math.ceil(topics.length / topicsMax) }, (_, number) => number * topicsMax);
    return starts.flatMap((start) =>
      topicBodies(command, clientId, ordered.slice(start, start + topicsMax), frameBytesMax, fields),
    );
  }
  const head = `${body(command, clientId, fields, frameBytesMax)},"topic":`;
  const bytesMax = frameBytesMax - ENVELOPE_BYTES - utf8Bytes(head);
  if (topics.length === 0) return [];
  const whole = JSON.stringify(topics);
  const wholeBytes = utf8Bytes(whole);
  if (wholeBytes <= bytesMax || topics.length === 1) return [head + whole];
  return [...cut(neighbours(topics), wholeBytes, bytesMax)].map((part) => head + part);
}

/**
 * Return the topics in the order of their CRC-32 modulo 4,096.
 * @param {readonly string[]} topics
 * @returns {string[]}
 */
export function neighbours(topics) {
  /** @type {string[][]} */
  const groups = Array.from({ length: GROUPS }, () => []);
  for (const topic of topics) groups[slotOf(topic)].push(topic);
  return groups.flat();
}

/**
 * Return a topic's slot: its CRC-32 modulo 4,096.
 * @param {string} topic
 * @returns {number}
 */
export function slotOf(topic) {
  return crc32(ENCODER.encode(topic)) % GROUPS;
}

/**
 * Split the topics into as many lists as the mean length suggests. Split lists that are still too long again.
 * @param {readonly string[]} topics
 * @param {number} wholeBytes
 * @param {number} bytesMax
 * @returns {Generator<string>}
 */
function* cut(topics, wholeBytes, bytesMax) {
  let size = Math.max(Math.floor((topics.length * bytesMax) / wholeBytes), 1);
  if (size === topics.length) size -= 1;
  for (let start = 0; start < topics.length; start += size) {
    const part = topics.slice(start, start + size);
    const text = JSON.stringify(part);
    const bytes = utf8Bytes(text);
    if (bytes <= bytesMax || part.length === 1) yield text;
    else yield* cut(part, bytes, bytesMax);
  }
}

/**
 * Return the error in an error reply. Its `extra` has the fields that only some replies have.
 * @param {Record<string, unknown>} reply
 * @returns {ProtocolError}
 */
export function errorOf(reply) {
  const { error, message, info, id: _, ...extra } = reply;
  return new ProtocolError(String(error), String(info || message || ""), extra);
}
