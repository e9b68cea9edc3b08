/**
 * Valid topics, client ids and JSON values. SPEC sections 2, 2.1 and 4.
 *
 * Owns: the checks, and how a value is written as JSON that an endpoint accepts. Must never: know a command.
 *
 * If an endpoint cannot read a command as JSON, it answers without an `id`, so the command would wait for its time-out.
 * So the client checks payloads for values that `JSON.stringify` accepts and endpoints do not.
 */

import { ProtocolError } from "./errors.js";

export const TOPIC_BYTES_MAX = 1024;
export const CLIENT_ID_BYTES_MAX = 128;
export const DEDUP_KEY_BYTES_MAX = 128;
/** Maximum number of bytes of a revoked token's own id, and of its subject. */
export const JTI_BYTES_MAX = 128;
export const SUBJECT_BYTES_MAX = 129;

/**
 * Strings that cannot be keys. A program that sends one means an option, and would give all messages the same key.
 */
const DEDUP_NO_KEYS = ["false", "retry", "true"];

/** The deepest nesting that every endpoint accepts. */
export const LEVELS_MAX = 250;

/** The longest time-to-live of a subscription, in seconds: 30 days. */
export const TTL_S_MAX = 30 * 24 * 3600;

const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;
const LONE_SURROGATE = /\p{Surrogate}/u;

/** `JSON.stringify` escapes only a lone surrogate like this. An escaped backslash can precede the escape. */
const ESCAPED_SURROGATE = /(?:^|[^\\])(?:\\\\)*\\ud[89a-f]/;

/** Matches JSON tokens that can contain digits. It also matches strings, so that the search skips them. */
const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;
const MANY_DIGITS = /\d{19}/;
const INTEGER = /^-?\d{19,}$/;
const INTEGER_MIN = -(2n ** 63n);
const INTEGER_MAX = 2n ** 64n - 1n;

/**
 * Return the length of a text in bytes of UTF-8.
 * @param {string} text
 * @returns {number}
 */
export function utf8Bytes(text) {
  let bytes = text.length;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit > 0x7f) bytes += unit > 0x7ff && (unit < 0xd800 || unit > 0xdfff) ? 2 : 1;
  }
  return bytes;
}

/**
 * Return whether this is a string of 1 to `bytesMax` bytes of UTF-8.
 * @param {unknown} text
 * @param {number} bytesMax
 * @returns {text is string}
 */
export function isTextOf(text, bytesMax) {
  return typeof text === "string" && text !== "" && !LONE_SURROGATE.test(text) && utf8Bytes(text) <= bytesMax;
}

/**
 * Return the topic. Throws `bad_state` if it is not a string, and `bad_topic` if it is not valid.
 * @param {unknown} topic
 * @returns {string}
 */
export function checkTopic(topic) {
  if (typeof topic !== "string") {
    throw new ProtocolError("bad_state", "Key 'topic' has to be a string, or a list of strings");
  }
  if (topic === "") throw new ProtocolError("bad_topic", "Key 'topic' is empty");
  const control = CONTROL.exec(topic);
  if (control !== null) {
    const code = control[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
    throw new ProtocolError("bad_topic", `Key 'topic' has the control character U+${code}`);
  }
  if (LONE_SURROGATE.test(topic)) {
    throw new ProtocolError("bad_topic", "Key 'topic' is not valid Unicode: it has a lone surrogate");
  }
  if (topic.length * 3 > TOPIC_BYTES_MAX && utf8Bytes(topic) > TOPIC_BYTES_MAX) {
    throw new ProtocolError("bad_topic", `Key 'topic' is longer than ${TOPIC_BYTES_MAX} bytes of UTF-8`);
  }
  return topic;
}

/**
 * Return the id if it is a safe integer, or a string of 1 to 128 bytes. Throws a `TypeError` otherwise.
 * @param {unknown} clientId
 * @returns {string | number}
 */
export function checkClientId(clientId) {
  if (typeof clientId === "number" && Number.isSafeInteger(clientId)) return clientId;
  if (isTextOf(clientId, CLIENT_ID_BYTES_MAX)) return clientId;
  throw new TypeError(`the client id has to be a safe integer or a string of 1 to ${CLIENT_ID_BYTES_MAX} bytes`);
}

/**
 * Return the value of `dedup`. Throws `bad_state` if it is not valid.
 * @param {unknown} dedup
 * @returns {boolean | string}
 */
export function checkDedup(dedup) {
  if (typeof dedup === "boolean") return dedup;
  if (isTextOf(dedup, DEDUP_KEY_BYTES_MAX) && !DEDUP_NO_KEYS.includes(dedup)) return dedup;
  throw new ProtocolError(
    "bad_state",
    `Key 'dedup' has to be true, false, or this message's own key: a string of 1 to ${DEDUP_KEY_BYTES_MAX} bytes of ` +
      `UTF-8 that is none of ${DEDUP_NO_KEYS.join(", ")}`,
  );
}

/**
 * Return the fields of a subscribe that say when it ends, or no fields if it stays. Throws `bad_state` if a value is
 * not valid.
 * @param {unknown} until
 * @param {unknown} ttlS
 * @returns {{ until?: "disconnect", ttl_s?: number }}
 */
export function termFields(until, ttlS) {
  /** @type {{ until?: "disconnect", ttl_s?: number }} */
  const fields = {};
  if (until === "disconnect") fields.until = until;
  else if (until !== null) throw new ProtocolError("bad_state", "Key 'until' has to be \"disconnect\", or null here");
  if (typeof ttlS === "number" && Number.isInteger(ttlS) && ttlS >= 1 && ttlS <= TTL_S_MAX) fields.ttl_s = ttlS;
  else if (ttlS !== undefined) {
    throw new ProtocolError("bad_state", `Key 'ttl_s' has to be an integer from 1 to ${TTL_S_MAX} (in seconds)`);
  }
  return fields;
}

/**
 * Return the filter field of a subscribe or an unsubscribe, or no field without a filter. Throws a `TypeError` if the
 * filter is not an object, and `bad_filter` if JSON would turn it into another value. The endpoint checks the rest.
 * @param {unknown} filter
 * @returns {{ filter?: object }}
 */
export function filterFields(filter) {
  return filter === undefined ? {} : { filter: checkFilter(filter) };
}

/**
 * Return the filter. Throws a `TypeError` if it is not an object, and `bad_filter` if JSON would turn it into another
 * value.
 * @param {unknown} filter
 * @returns {object}
 */
export function checkFilter(filter) {
  if (!isObject(filter)) {
    throw new TypeError("a filter has to be an object of attributes, each with the list of its permitted values");
  }
  // JSON would write these values as null, or leave them out, which would make another filter.
  JSON.stringify(filter, (name, value) => {
    if (value === undefined || typeof value === "function" || typeof value === "symbol") {
      throw new ProtocolError("bad_filter", `${name}: has to be a value that JSON has, or to be left out`);
    }
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new ProtocolError("bad_filter", `${name}: has to be a finite number`);
    }
    return value;
  });
  return filter;
}

/**
 * Return a filter's text. Filters that are equal by SPEC section 2.6 have the same text.
 * @param {object} filter
 * @returns {string}
 */
export function filterText(filter) {
  return JSON.stringify(pattern(JSON.parse(JSON.stringify(filter))));
}

/**
 * Return an object of attributes with its keys sorted.
 * @param {any} value
 * @returns {any}
 */
function pattern(value) {
  if (!isObject(value)) return value;
  const written = Object.keys(value).sort().map((key) => {
    const inner = value[key];
    if (!Array.isArray(inner)) return [key, pattern(inner)];
    return [key, eachOnce(inner.map(key === "$or" ? pattern : member))];
  });
  return Object.fromEntries(written);
}

/**
 * Return an item of an attribute's list, with the values of `anything-but` sorted.
 * @param {any} value
 * @returns {any}
 */
function member(value) {
  if (!isObject(value) || !Array.isArray(value["anything-but"])) return value;
  const values = eachOnce(value["anything-but"]);
  return { "anything-but": values.length === 1 ? values[0] : values };
}

/** @param {unknown[]} values */
function eachOnce(values) {
  const texts = new Set(values.map((value) => JSON.stringify(value)));
  return [...texts].sort().map((text) => JSON.parse(text));
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, any>}
 */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Return the field by which a `revoke` names tokens. Throws `bad_state` unless exactly one of the two is given and has
 * the right form.
 * @param {unknown} jti
 * @param {unknown} sub
 * @returns {Record<string, unknown>}
 */
export function checkRevoke(jti, sub) {
  if ((jti === undefined) === (sub === undefined)) {
    throw new ProtocolError("bad_state", "Either key 'jti' or key 'sub' has to be there, and not both");
  }
  const [name, value, most] = jti === undefined ? ["sub", sub, SUBJECT_BYTES_MAX] : ["jti", jti, JTI_BYTES_MAX];
  if (isTextOf(value, most)) return { [name]: value };
  throw new ProtocolError("bad_state", `Key '${name}' has to be a string of 1 to ${most} bytes of UTF-8`);
}

/**
 * Return a value as JSON that an endpoint accepts. Throws `bad_json` if JSON cannot express the value. NaN and
 * infinities become `null`, as in `JSON.stringify`. An integer beyond 64 bits is written as a double.
 * @param {unknown} value
 * @returns {string}
 */
export function json(value) {
  let text;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    // The value has a BigInt, a cycle, or nesting beyond the stack. An error of a `toJSON` is treated in the same way.
    throw new ProtocolError("bad_json", `Cannot be written as JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (text === undefined) {
    throw new ProtocolError("bad_json", `Cannot be written as JSON: a value of type ${typeof value}`);
  }
  if (text.includes("\\ud") && ESCAPED_SURROGATE.test(text)) {
    throw new ProtocolError("bad_json", "Not valid Unicode: it has a lone surrogate");
  }
  if (text.length > 2 * LEVELS_MAX && levels(text) > LEVELS_MAX) {
    throw new ProtocolError("bad_json", `Nested too deeply: ${LEVELS_MAX} levels are the most`);
  }
  return MANY_DIGITS.test(text) ? text.replace(STRING_OR_NUMBER, withinRange) : text;
}

/**
 * Return how deeply JSON is nested.
 * @param {string} text
 */
function levels(text) {
  let level = 0;
  let most = 0;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case 0x22: // a string: skip to its end
        for (at++; text.charCodeAt(at) !== 0x22; at++) if (text.charCodeAt(at) === 0x5c) at++;
        break;
      case 0x5b: // [
      case 0x7b: // {
        if (++level > most) most = level;
        break;
      case 0x5d:
      case 0x7d:
        level--;
    }
  }
  return most;
}

/** @param {string} token */
function withinRange(token) {
  if (!INTEGER.test(token)) return token;
  const integer = BigInt(token);
  return integer < INTEGER_MIN || integer > INTEGER_MAX ? `${token}.0` : token;
}
