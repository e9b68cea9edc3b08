/**
 * The client's side of the wire: the text of commands, and the meaning of replies. SPEC sections 2, 5 and 9.
 *
 * Owns: writing commands, cutting batches to the message limit, and reading error replies. Must never: do I/O.
 *
 * A command's *body* is its text up to the place of its `id` and the closing brace, so that sending it again under
 * another id needs no second encoding.
 */
import { ProtocolError } from "./errors.js";
/** Topics that a store can keep together have the same CRC-32 modulo this. */
export declare const GROUPS = 4096;
/**
 * CRC-32 (ISO-HDLC, that of zlib), as an unsigned integer.
 * @param {Uint8Array} bytes
 * @returns {number}
 */
export declare function crc32(bytes: Uint8Array): number;
/** Keys for `dedup` that are unique everywhere. */
export declare class FreshKeys {
    #private;
    /** @returns {string} */
    next(): string;
}
/**
 * One command's body. `bad_json`: JSON cannot express a value; `too_large`: an endpoint would close the connection.
 * @param {string} command
 * @param {string | number} clientId
 * @param {Record<string, unknown>} fields
 * @param {number} frameBytesMax
 * @returns {string}
 */
export declare function body(command: string, clientId: string | number, fields: Record<string, unknown>, frameBytesMax: number): string;
/**
 * The bodies of as many commands as the message limit requires. `bad_topic` for any of the topics.
 *
 * If there are several, neighbours share one: topics by CRC-32 modulo 4,096, since a store can spread its objects over
 * them (SPEC section 9) and write each once per command.
 * @param {string} command
 * @param {string | number} clientId
 * @param {readonly string[]} topics
 * @param {number} frameBytesMax
 * @param {Record<string, unknown>} [fields] The fields of each body.
 * @param {number} [topicsMax] Maximum number of topics in each body.
 * @returns {string[]}
 */
export declare function topicBodies(command: string, clientId: string | number, topics: readonly string[], frameBytesMax: number, fields?: Record<string, unknown>, topicsMax?: number): string[];
/**
 * The topics in the order of their CRC-32 modulo 4,096.
 * @param {readonly string[]} topics
 * @returns {string[]}
 */
export declare function neighbours(topics: readonly string[]): string[];
/**
 * A topic's slot: its CRC-32 modulo 4,096.
 * @param {string} topic
 * @returns {number}
 */
export declare function slotOf(topic: string): number;
/**
 * The error in an error reply, with the unusual fields in `extra`.
 * @param {Record<string, unknown>} reply
 * @returns {ProtocolError}
 */
export declare function errorOf(reply: Record<string, unknown>): ProtocolError;
