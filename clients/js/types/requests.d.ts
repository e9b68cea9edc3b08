/**
 * The client's side of the wire: the text of commands, and what a reply means. SPEC sections 2, 5 and 9.
 *
 * Owns: how commands are written, batches cut to the message limit, and error replies understood. Must never: do I/O.
 *
 * A command is written up to where its `id` and the closing brace go (its *body*), so that sending it again under
 * another id costs no second encoding.
 */
import { ProtocolError } from "./errors.js";
/** Topics that a store may keep together have the same CRC-32 modulo this. */
export declare const GROUPS = 4096;
/**
 * CRC-32 (ISO-HDLC, that of zlib), as an unsigned integer.
 * @param {Uint8Array} bytes
 * @returns {number}
 */
export declare function crc32(bytes: Uint8Array): number;
/** Keys for `dedup` that nobody else makes, here or anywhere. */
export declare class FreshKeys {
    #private;
    /** @returns {string} */
    next(): string;
}
/**
 * One command's body. `bad_json` for what JSON cannot say, `too_large` for what an endpoint would close upon.
 * @param {string} command
 * @param {string | number} clientId
 * @param {Record<string, unknown>} fields
 * @param {number} frameBytesMax
 * @returns {string}
 */
export declare function body(command: string, clientId: string | number, fields: Record<string, unknown>, frameBytesMax: number): string;
/**
 * The bodies of as many commands as the message limit asks for. `bad_topic` for any of the topics.
 *
 * Where they are several, neighbours are in one: topics by CRC-32 modulo 4,096, as a store may share its objects among
 * them (SPEC section 9) and write each once per command.
 * @param {string} command
 * @param {string | number} clientId
 * @param {readonly string[]} topics
 * @param {number} frameBytesMax
 * @param {Record<string, unknown>} [fields] That each of them has.
 * @param {number} [topicsMax] Of each of them.
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
 * The error that an error reply tells, with the fields beyond the usual ones in `extra`.
 * @param {Record<string, unknown>} reply
 * @returns {ProtocolError}
 */
export declare function errorOf(reply: Record<string, unknown>): ProtocolError;
