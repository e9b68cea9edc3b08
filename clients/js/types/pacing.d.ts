/**
 * The commands of a large subscribe: how many of them are under way at once.
 *
 * Owns: their number, and that none is left under way at the end. Must never: know what they say, or repeat one.
 */
/**
 * Send them all; their replies, in any order. The first error ends it, and is thrown.
 * @param {readonly string[]} bodies
 * @param {AbortSignal | undefined} signal
 * @param {(text: string, signal: AbortSignal | undefined) => Promise<Record<string, any>>} send
 * @returns {Promise<Record<string, any>[]>}
 */
export declare function paced(bodies: readonly string[], signal: AbortSignal | undefined, send: (text: string, signal: AbortSignal | undefined) => Promise<Record<string, any>>): Promise<Record<string, any>[]>;
