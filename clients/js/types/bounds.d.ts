/**
 * Checks bounds, which say how stale and how incomplete a client's picture may become, and the fields that say what a
 * message is about. SPEC section 2.8.
 *
 * Owns: the checks of these values, with the error texts of an endpoint. Must never: hold a message, or read a clock.
 */
/** Maximum number of rules of one client. */
export declare const RULES_MAX = 32;
/** The maximum of a staleness and of an interval, and the minimum of a staleness, in milliseconds. */
export declare const STALENESS_MS_MAX = 40960;
export declare const STALENESS_MS_MIN = 10;
/** Maximum number of unconfirmed notifications that a window can permit. */
export declare const WINDOW_MAX = 100000;
export declare const ITEM_BYTES_MAX = 128;
export declare const WEIGHT_MAX = 1000000;
export type Rule = {
    /**
     * The only topic that the rule matches.
     */
    topic?: string;
    /**
     * The beginning of the topics that the rule matches; `""` matches every topic.
     */
    prefix?: string;
    /**
     * The greatest age of a held message, 10 to 40,960. Default: null, no bound.
     */
    staleness_ms?: number | null;
    /**
     * The greatest total weight of held messages. Default: null, no bound.
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
 * Bounds for the topics that the rule matches. The fields have the protocol's names. A rule has either `topic` or
 * `prefix`.
 * @typedef {object} Rule
 * @property {string} [topic] The only topic that the rule matches.
 * @property {string} [prefix] The beginning of the topics that the rule matches; `""` matches every topic.
 * @property {number | null} [staleness_ms] The greatest age of a held message, 10 to 40,960. Default: null, no bound.
 * @property {number | null} [numerical] The greatest total weight of held messages. Default: null, no bound.
 * @property {number} [interval_ms] The least time between two deliveries of a topic, up to 40,960. Default: 0.
 * @property {"all" | "latest"} [deliver] `"latest"`: only the newest held message of each item. Default: `"all"`.
 * @property {number} [priority] From -1 to 1; greater is more urgent. Default: 0.
 */
/** @typedef {"live" | "screen" | "wall" | readonly Rule[]} Bounds A preset, or rules: the first match applies. */
/**
 * Return the value of `bounds` as the client sends it. Throws `bad_state` if the value is not valid, and `bad_topic` if
 * a rule's topic is not valid.
 * @param {unknown} bounds
 * @returns {Bounds}
 */
export declare function checkBounds(bounds: unknown): Bounds;
/**
 * Return the value of `window`, the number of notifications that the client leaves unconfirmed. Throws `bad_state` if
 * the value is not valid.
 * @param {unknown} window
 * @returns {number}
 */
export declare function checkWindow(window: unknown): number;
/**
 * Return the fields of a publish that say which item it is about, and its weight. Throws `bad_state` if a value is not
 * valid.
 * @param {unknown} item
 * @param {unknown} weight
 * @returns {{ item?: string, weight?: number }}
 */
export declare function aboutFields(item: unknown, weight: unknown): {
    item?: string;
    weight?: number;
};
