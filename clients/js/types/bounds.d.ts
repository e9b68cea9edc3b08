/**
 * How stale and how incomplete a client lets its picture become, and what its messages are about. SPEC section 2.8.
 *
 * Owns: the checks of these values, in the words of an endpoint. Must never: hold a message, or read a clock.
 */
/** Rules of one client. */
export declare const RULES_MAX = 32;
/** The longest staleness and interval, in milliseconds, and the least staleness. */
export declare const STALENESS_MS_MAX = 40960;
export declare const STALENESS_MS_MIN = 10;
/** Notifications that a window may leave unconfirmed. */
export declare const WINDOW_MAX = 100000;
export declare const ITEM_BYTES_MAX = 128;
export declare const WEIGHT_MAX = 1000000;
export type Rule = {
    /**
     * The only topic that it matches.
     */
    topic?: string;
    /**
     * The beginning of the topics that it matches; `""`: every topic.
     */
    prefix?: string;
    /**
     * The greatest age of a held message, 10 to 40,960. Default: null, no bound.
     */
    staleness_ms?: number | null;
    /**
     * The greatest weight of held messages. Default: null, no bound.
     */
    numerical?: number | null;
    /**
     * The least time between two deliveries of a topic, up to 40,960. Default: 0.
     */
    interval_ms?: number;
    /**
     * `"latest"`: only the newest held message of each item. Default: `"all"`.
     */
    deliver?: "all" | "latest";
    /**
     * From -1 to 1; greater is more urgent. Default: 0.
     */
    priority?: number;
};
export type Bounds = "live" | "screen" | "wall" | readonly Rule[];
/**
 * Bounds for the topics that it matches, with the protocol's names. Either `topic` or `prefix` is there.
 * @typedef {object} Rule
 * @property {string} [topic] The only topic that it matches.
 * @property {string} [prefix] The beginning of the topics that it matches; `""`: every topic.
 * @property {number | null} [staleness_ms] The greatest age of a held message, 10 to 40,960. Default: null, no bound.
 * @property {number | null} [numerical] The greatest weight of held messages. Default: null, no bound.
 * @property {number} [interval_ms] The least time between two deliveries of a topic, up to 40,960. Default: 0.
 * @property {"all" | "latest"} [deliver] `"latest"`: only the newest held message of each item. Default: `"all"`.
 * @property {number} [priority] From -1 to 1; greater is more urgent. Default: 0.
 */
/** @typedef {"live" | "screen" | "wall" | readonly Rule[]} Bounds A preset, or rules: the first match counts. */
/**
 * The value of `bounds` as the client sends it. `bad_state`: it is not valid; `bad_topic`: a rule's topic is not.
 * @param {unknown} bounds
 * @returns {Bounds}
 */
export declare function checkBounds(bounds: unknown): Bounds;
/**
 * The value of `window`: how many notifications the client leaves unconfirmed. `bad_state`: it is not valid.
 * @param {unknown} window
 * @returns {number}
 */
export declare function checkWindow(window: unknown): number;
/**
 * The fields of a publish that say what it is about, and how much. `bad_state`: one is not valid.
 * @param {unknown} item
 * @param {unknown} weight
 * @returns {{ item?: string, weight?: number }}
 */
export declare function aboutFields(item: unknown, weight: unknown): {
    item?: string;
    weight?: number;
};
