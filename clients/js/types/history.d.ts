/**
 * Retained messages: the fields of commands that request them, and the replies to these commands. SPEC sections 2.1,
 * 2.2 and 9.
 *
 * Owns: the checks of these fields, and the form of a page of history. Must never: send anything, or remember a
 * request, which is the task of recovery.js.
 */
/** The longest time that a message is retained, in seconds: a day. */
export declare const KEEP_S_MAX: number;
/** Maximum number of messages of one topic in a request. */
export declare const LAST_MAX = 1000;
/** Maximum number of topics in one subscribe that requests retained messages. */
export declare const SINCE_TOPICS_MAX = 1000;
export declare const POSITION_BYTES_MAX = 128;
export type Publication = {
    /**
     * The payload, a JSON value.
     */
    broadcast: any;
    /**
     * The message's permanent name.
     */
    mid: string;
};
export type History = {
    /**
     * The oldest first.
     */
    publications: Publication[];
    /**
     * The last message's `mid`, which is `since` for the next page. null if there are no
     * messages.
     */
    mid: string | null;
    /**
     * Whether more messages follow, because `limit` or the maximum size of a reply cut them off.
     */
    more: boolean;
    /**
     * With `since`: whether the endpoint found that message, and has dropped no message after
     * it.
     */
    recovered: boolean;
};
import type { HistoryOptions } from "./options.js";
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
export declare function isPosition(text: unknown): text is string;
/**
 * Return the field by which endpoints retain a publish. Throws `bad_state` if the time is out of range.
 * @param {unknown} keepS
 * @returns {{ keep_s?: number }}
 */
export declare function keepFields(keepS: unknown): {
    keep_s?: number;
};
/**
 * Return the field with which a subscribe requests retained messages, or no field if it requests none. Throws
 * `bad_state` if a value is wrong.
 * @param {unknown} last
 * @param {unknown} since
 * @returns {{ last?: number, since?: string }}
 */
export declare function keptFields(last: unknown, since: unknown): {
    last?: number;
    since?: string;
};
/**
 * Return the fields of a `history` command, without its topic. Throws `bad_state` if a value is wrong.
 * @param {HistoryOptions} options
 * @returns {Record<string, unknown>}
 */
export declare function historyFields({ last, since, limit, filter }: HistoryOptions): Record<string, unknown>;
/**
 * Read the reply to `history`.
 * @param {Record<string, any>} reply
 * @returns {History}
 */
export declare function historyOf({ publications, mid, more, recovered }: Record<string, any>): History;
