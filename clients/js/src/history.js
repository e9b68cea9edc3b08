/**
 * Retained messages: the fields of commands that request them, and the replies to these commands. SPEC sections 2.1,
 * 2.2 and 9.
 *
 * Owns: the checks of these fields, and the form of a page of history. Must never: send anything, or remember a
 * request, which is the task of recovery.js.
 */

import { ProtocolError } from "./errors.js";
import { checkFilter, isTextOf } from "./text.js";

/** The longest time that a message is retained, in seconds: a day. */
export const KEEP_S_MAX = 24 * 3600;

/** Maximum number of messages of one topic in a request. */
export const LAST_MAX = 1_000;

/** Maximum number of topics in one subscribe that requests retained messages. */
export const SINCE_TOPICS_MAX = 1_000;

export const POSITION_BYTES_MAX = 128;
const MID_BYTES_MAX = 128;

/**
 * A retained message of a topic.
 * @typedef {object} Publication
 * @property {any} broadcast The payload, a JSON value.
 * @property {string} mid The message's permanent name.
 */

/**
 * @typedef {object} History
 * @property {Publication[]} publications The oldest first.
 * @property {string | null} mid The last message's `mid`, which is `since` for the next page. null if there are no
 *   messages.
 * @property {boolean} more Whether more messages follow, because `limit` or the maximum size of a reply cut them off.
 * @property {boolean} recovered With `since`: whether the endpoint found that message, and has dropped no message after
 *   it.
 */

/** @import { HistoryOptions } from "./options.js" */

/**
 * Return whether this has the form of a position.
 * @param {unknown} text
 * @returns {text is string}
 */
export function isPosition(text) {
  return isTextOf(text, POSITION_BYTES_MAX);
}

/**
 * Return the field by which endpoints retain a publish. Throws `bad_state` if the time is out of range.
 * @param {unknown} keepS
 * @returns {{ keep_s?: number }}
 */
export function keepFields(keepS) {
  if (keepS === undefined) return {};
  return { keep_s: whole("keep_s", keepS, KEEP_S_MAX, " (in seconds)") };
}

/**
 * Return the field with which a subscribe requests retained messages, or no field if it requests none. Throws
 * `bad_state` if a value is wrong.
 * @param {unknown} last
 * @param {unknown} since
 * @returns {{ last?: number, since?: string }}
 */
export function keptFields(last, since) {
  if (since === undefined) return lastFields(last);
  exclude(last);
  if (isPosition(since)) return { since };
  throw new ProtocolError(
    "bad_state",
    `Key 'since' has to be a position as an endpoint gave it (1 to ${POSITION_BYTES_MAX} bytes)`,
  );
}

/**
 * Return the fields of a `history` command, without its topic. Throws `bad_state` if a value is wrong.
 * @param {HistoryOptions} options
 * @returns {Record<string, unknown>}
 */
export function historyFields({ last, since, limit, filter }) {
  /** @type {Record<string, unknown>} */
  const fields = lastFields(last);
  if (since !== undefined) {
    exclude(last);
    if (!isTextOf(since, MID_BYTES_MAX)) {
      throw new ProtocolError("bad_state", "Key 'since' has to be the 'mid' of a message, as an endpoint gave it");
    }
    fields.since = since;
  }
  if (limit !== undefined) fields.limit = whole("limit", limit, LAST_MAX, "");
  if (filter !== undefined) fields.filter = checkFilter(filter);
  return fields;
}

/**
 * Read the reply to `history`.
 * @param {Record<string, any>} reply
 * @returns {History}
 */
export function historyOf({ publications, mid, more, recovered }) {
  return { publications, mid: mid ?? null, more: more === true, recovered: recovered === true };
}

/**
 * @param {unknown} last
 * @returns {{ last?: number }}
 */
function lastFields(last) {
  return last === undefined ? {} : { last: whole("last", last, LAST_MAX, " (messages)") };
}

/** @param {unknown} last */
function exclude(last) {
  if (last === undefined) return;
  throw new ProtocolError("bad_state", "Keys 'last' and 'since' exclude each other; leave one out");
}

/**
 * @param {string} name
 * @param {unknown} count
 * @param {number} most
 * @param {string} of
 */
function whole(name, count, most, of) {
  if (typeof count === "number" && Number.isInteger(count) && count >= 1 && count <= most) return count;
  throw new ProtocolError("bad_state", `Key '${name}' has to be an integer from 1 to ${most}${of}`);
}
