/**
 * Valid topics, client ids and JSON values. SPEC sections 2, 2.1 and 4.
 *
 * Owns: the checks, and how a value is written as JSON that an endpoint accepts. Must never: know a command.
 *
 * If an endpoint cannot read a command as JSON, it answers without an `id`, so the command would wait for its time-out.
 * So the client checks payloads for values that `JSON.stringify` lets pass.
 */
export declare const TOPIC_BYTES_MAX = 1024;
export declare const CLIENT_ID_BYTES_MAX = 128;
export declare const DEDUP_KEY_BYTES_MAX = 128;
/** Maximum number of bytes of a revoked token's own id, and of its subject. */
export declare const JTI_BYTES_MAX = 128;
export declare const SUBJECT_BYTES_MAX = 129;
/** The deepest nesting that every endpoint accepts. */
export declare const LEVELS_MAX = 250;
/** The longest time-to-live of a subscription, in seconds: 30 days. */
export declare const TTL_S_MAX: number;
/**
 * The length of a text in bytes of UTF-8.
 * @param {string} text
 * @returns {number}
 */
export declare function utf8Bytes(text: string): number;
/**
 * Is it a string of 1 to `bytesMax` bytes of UTF-8?
 * @param {unknown} text
 * @param {number} bytesMax
 * @returns {text is string}
 */
export declare function isTextOf(text: unknown, bytesMax: number): text is string;
/**
 * The topic itself. `bad_state`: it is not a string; `bad_topic`: it is not valid.
 * @param {unknown} topic
 * @returns {string}
 */
export declare function checkTopic(topic: unknown): string;
/**
 * The id itself, if it is a safe integer or a string of 1 to 128 bytes; else a `TypeError`.
 * @param {unknown} clientId
 * @returns {string | number}
 */
export declare function checkClientId(clientId: unknown): string | number;
/**
 * The value of `dedup`. `bad_state`: it is not valid.
 * @param {unknown} dedup
 * @returns {boolean | string}
 */
export declare function checkDedup(dedup: unknown): boolean | string;
/**
 * The fields of a subscribe for its end; none: it stays. `bad_state`: the term is not valid.
 * @param {unknown} until
 * @param {unknown} ttlS
 * @returns {{ until?: "disconnect", ttl_s?: number }}
 */
export declare function termFields(until: unknown, ttlS: unknown): {
    until?: "disconnect";
    ttl_s?: number;
};
/**
 * The filter field of a subscribe or an unsubscribe; none without a filter. A `TypeError`: it is not an object;
 * `bad_filter`: JSON would turn it into another value. The endpoint judges the rest.
 * @param {unknown} filter
 * @returns {{ filter?: object }}
 */
export declare function filterFields(filter: unknown): {
    filter?: object;
};
/**
 * The filter itself, if it is an object (else a `TypeError`) that JSON does not turn into another value (else
 * `bad_filter`).
 * @param {unknown} filter
 * @returns {object}
 */
export declare function checkFilter(filter: unknown): object;
/**
 * A filter's text: equal for filters that are equal by SPEC section 2.6.
 * @param {object} filter
 * @returns {string}
 */
export declare function filterText(filter: object): string;
/**
 * @param {unknown} value
 * @returns {value is Record<string, any>}
 */
export declare function isObject(value: unknown): value is Record<string, any>;
/**
 * The fields by which a `revoke` names tokens. `bad_state`: not exactly one of the two, or one of the wrong form.
 * @param {unknown} jti
 * @param {unknown} sub
 * @returns {Record<string, unknown>}
 */
export declare function checkRevoke(jti: unknown, sub: unknown): Record<string, unknown>;
/**
 * A value as JSON that an endpoint accepts. `bad_json`: JSON cannot express it. NaN and infinities become `null`, as in
 * `JSON.stringify`, and an integer beyond 64 bits is written as the double that it is.
 * @param {unknown} value
 * @returns {string}
 */
export declare function json(value: unknown): string;
