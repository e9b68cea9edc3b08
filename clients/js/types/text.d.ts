/**
 * Valid topics, client ids and JSON values. SPEC sections 2, 2.1 and 4.
 *
 * Owns: the checks, and how a value is written as JSON that an endpoint accepts. Must never: know a command.
 *
 * If an endpoint cannot read a command as JSON, it answers without an `id`, so the command would wait for its time-out.
 * So the client checks payloads for values that `JSON.stringify` accepts and endpoints do not.
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
 * Return the length of a text in bytes of UTF-8.
 * @param {string} text
 * @returns {number}
 */
export declare function utf8Bytes(text: string): number;
/**
 * Return whether this is a string of 1 to `bytesMax` bytes of UTF-8.
 * @param {unknown} text
 * @param {number} bytesMax
 * @returns {text is string}
 */
export declare function isTextOf(text: unknown, bytesMax: number): text is string;
/**
 * Return the topic. Throws `bad_state` if it is not a string, and `bad_topic` if it is not valid.
 * @param {unknown} topic
 * @returns {string}
 */
export declare function checkTopic(topic: unknown): string;
/**
 * Return the id if it is a safe integer, or a string of 1 to 128 bytes. Throws a `TypeError` otherwise.
 * @param {unknown} clientId
 * @returns {string | number}
 */
export declare function checkClientId(clientId: unknown): string | number;
/**
 * Return the value of `dedup`. Throws `bad_state` if it is not valid.
 * @param {unknown} dedup
 * @returns {boolean | string}
 */
export declare function checkDedup(dedup: unknown): boolean | string;
/**
 * Return the fields of a subscribe that say when it ends, or no fields if it stays. Throws `bad_state` if a value is
 * not valid.
 * @param {unknown} until
 * @param {unknown} ttlS
 * @returns {{ until?: "disconnect", ttl_s?: number }}
 */
export declare function termFields(until: unknown, ttlS: unknown): {
    until?: "disconnect";
    ttl_s?: number;
};
/**
 * Return the filter field of a subscribe or an unsubscribe, or no field without a filter. Throws a `TypeError` if the
 * filter is not an object, and `bad_filter` if JSON would turn it into another value. The endpoint checks the rest.
 * @param {unknown} filter
 * @returns {{ filter?: object }}
 */
export declare function filterFields(filter: unknown): {
    filter?: object;
};
/**
 * Return the filter. Throws a `TypeError` if it is not an object, and `bad_filter` if JSON would turn it into another
 * value.
 * @param {unknown} filter
 * @returns {object}
 */
export declare function checkFilter(filter: unknown): object;
/**
 * Return a filter's text. Filters that are equal by SPEC section 2.6 have the same text.
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
 * Return the field by which a `revoke` names tokens. Throws `bad_state` unless exactly one of the two is given and has
 * the right form.
 * @param {unknown} jti
 * @param {unknown} sub
 * @returns {Record<string, unknown>}
 */
export declare function checkRevoke(jti: unknown, sub: unknown): Record<string, unknown>;
/**
 * Return a value as JSON that an endpoint accepts. Throws `bad_json` if JSON cannot express the value. NaN and
 * infinities become `null`, as in `JSON.stringify`. An integer beyond 64 bits is written as a double.
 * @param {unknown} value
 * @returns {string}
 */
export declare function json(value: unknown): string;
