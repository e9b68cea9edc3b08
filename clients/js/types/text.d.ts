/**
 * What may be said: topics, client ids, JSON values. SPEC sections 2, 2.1 and 4.
 *
 * Owns: the checks, and how a value is written as JSON that an endpoint accepts. Must never: know a command.
 *
 * What an endpoint cannot read as JSON it answers without an `id`, so that the command would wait for its time-out:
 * that is why payloads are checked here for what `JSON.stringify` lets pass.
 */
export declare const TOPIC_BYTES_MAX = 1024;
export declare const CLIENT_ID_BYTES_MAX = 128;
export declare const DEDUP_KEY_BYTES_MAX = 128;
/** Of a token that is revoked: its own id, and its subject. */
export declare const JTI_BYTES_MAX = 128;
export declare const SUBJECT_BYTES_MAX = 129;
/** The deepest nesting that an endpoint is sure to take. */
export declare const LEVELS_MAX = 250;
/** Seconds after which a subscription may be said to end: 30 days. */
export declare const TTL_S_MAX: number;
/**
 * Bytes of UTF-8 that a text takes.
 * @param {string} text
 * @returns {number}
 */
export declare function utf8Bytes(text: string): number;
/**
 * Is it a string of 1 to so many bytes of UTF-8?
 * @param {unknown} text
 * @param {number} bytesMax
 * @returns {text is string}
 */
export declare function isTextOf(text: unknown, bytesMax: number): text is string;
/**
 * The topic itself. `bad_state`: it is not a string; `bad_topic`: it is a bad one.
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
 * What `dedup` is, if it may be that. `bad_state`: it may not.
 * @param {unknown} dedup
 * @returns {boolean | string}
 */
export declare function checkDedup(dedup: unknown): boolean | string;
/**
 * The fields of a subscribe for when it ends; none: it stays. `bad_state`: it is no term.
 * @param {unknown} until
 * @param {unknown} ttlS
 * @returns {{ until?: "disconnect", ttl_s?: number }}
 */
export declare function termFields(until: unknown, ttlS: unknown): {
    until?: "disconnect";
    ttl_s?: number;
};
/**
 * The field that a subscribe or an unsubscribe has for its filter; none: it has none. A `TypeError`: it is no object;
 * `bad_filter`: JSON would turn it into another value. The rest is the endpoint's to judge.
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
 * A filter's text: two that are the same by SPEC section 2.6 have the same.
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
 * The fields by which a `revoke` names tokens. `bad_state`: not one of the two, or not of the right form.
 * @param {unknown} jti
 * @param {unknown} sub
 * @returns {Record<string, unknown>}
 */
export declare function checkRevoke(jti: unknown, sub: unknown): Record<string, unknown>;
/**
 * A value as JSON that an endpoint accepts. `bad_json`: there is none. NaN and infinities become `null`, as
 * `JSON.stringify` has it, and an integer beyond 64 bits is written as the double that it is.
 * @param {unknown} value
 * @returns {string}
 */
export declare function json(value: unknown): string;
