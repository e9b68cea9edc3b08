/**
 * The client's side of the wire: the text of commands, and the meaning of replies. SPEC sections 2, 5 and 9.
 *
 * Owns: writing commands, cutting batches to the message limit, and reading error replies. Must never: do I/O.
 *
 * A command's *body* is its text without its `id` and the closing brace. So the client can send the command again under
 * another id, without a second encoding.
 */
import { ProtocolError } from "./errors.js";
/** Topics that a store can keep together have the same CRC-32 modulo this. */
export declare const GROUPS = 4096;
/**
 * Return the CRC-32 (ISO-HDLC, as in zlib), as an unsigned integer.
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
 * Return one command's body. Throws `bad_json` if JSON cannot express a value, and `too_large` if the command is so
 * large that an endpoint would close the connection.
 * @param {string} command
 * @param {string | number} clientId
 * @param {Record<string, unknown>} fields
 * @param {number} frameBytesMax
 * @returns {string}
 */
export declare function body(command: string, clientId: string | number, fields: Record<string, unknown>, frameBytesMax: number): string;
/**
 * Return the bodies of as many commands as the message limit requires. Throws `bad_topic` if any topic is invalid.
 *
 * If there are several commands, each command gets topics with neighbouring values of CRC-32 modulo 4,096. A store can
 * spread its objects over these values (SPEC section 9), and then writes each object once per command.
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
 * Return the topics in the order of their CRC-32 modulo 4,096.
 * @param {readonly string[]} topics
 * @returns {string[]}
 */
export declare function neighbours(topics: readonly string[]): string[];
/**
 * Return a topic's slot: its CRC-32 modulo 4,096.
 * @param {string} topic
 * @returns {number}
 */
export declare function slotOf(topic: string): number;
/**
 * Return the error in an error reply. Its `extra` has the fields that only some replies have.
 * @param {Record<string, unknown>} reply
 * @returns {ProtocolError}
 */
export declare function errorOf(reply: Record<string, unknown>): ProtocolError;
