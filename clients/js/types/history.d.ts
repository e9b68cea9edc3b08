/**
 * The messages that endpoints keep: what a client asks of them, and what the replies mean. SPEC sections 2.1, 2.2 and 9.
 *
 * Owns: the checks of these fields, and the form of a page of history. Must never: send anything, or remember what it was
 * asked: a client that recovers has recovery.js for that.
 */
/** Seconds that a message may be kept: a day. */
export declare const KEEP_S_MAX: number;
/** Messages of one topic that may be asked for at once. */
export declare const LAST_MAX = 1000;
/** Topics of one subscribe that asks for kept messages. */
export declare const SINCE_TOPICS_MAX = 1000;
export declare const POSITION_BYTES_MAX = 128;
export type Publication = {
    /**
     * The payload, a JSON value.
     */
    broadcast: any;
    /**
     * What names the message for good.
     */
    mid: string;
};
export type History = {
    /**
     * The oldest first.
     */
    publications: Publication[];
    /**
     * The last one's: `since` for the next page. null: there are none.
     */
    mid: string | null;
    /**
     * There are more behind them: `limit`, or the size of a reply, cut them off.
     */
    more: boolean;
    /**
     * With `since`: that message was found, and nothing after it had been forgotten.
     */
    recovered: boolean;
};
import type { HistoryOptions } from "./options.js";
/**
 * A kept message of a topic.
 * @typedef {object} Publication
 * @property {any} broadcast The payload, a JSON value.
 * @property {string} mid What names the message for good.
 */
/**
 * @typedef {object} History
 * @property {Publication[]} publications The oldest first.
 * @property {string | null} mid The last one's: `since` for the next page. null: there are none.
 * @property {boolean} more There are more behind them: `limit`, or the size of a reply, cut them off.
 * @property {boolean} recovered With `since`: that message was found, and nothing after it had been forgotten.
 */
/** @import { HistoryOptions } from "./options.js" */
/**
 * Is this a position, by its form?
 * @param {unknown} text
 * @returns {text is string}
 */
export declare function isPosition(text: unknown): text is string;
/**
 * The field of a publish that is to be kept. `bad_state`: not so long.
 * @param {unknown} keepS
 * @returns {{ keep_s?: number }}
 */
export declare function keepFields(keepS: unknown): {
    keep_s?: number;
};
/**
 * The field with which a subscribe asks for kept messages; none: it asks for none. `bad_state`: it is wrong.
 * @param {unknown} last
 * @param {unknown} since
 * @returns {{ last?: number, since?: string }}
 */
export declare function keptFields(last: unknown, since: unknown): {
    last?: number;
    since?: string;
};
/**
 * The fields of a `history`, but for its topic. `bad_state`: one is wrong.
 * @param {HistoryOptions} options
 * @returns {Record<string, unknown>}
 */
export declare function historyFields({ last, since, limit, filter }: HistoryOptions): Record<string, unknown>;
/**
 * What the reply to `history` says.
 * @param {Record<string, any>} reply
 * @returns {History}
 */
export declare function historyOf({ publications, mid, more, recovered }: Record<string, any>): History;
