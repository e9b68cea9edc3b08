/**
 * The commands of a large subscribe: how many are under way at once.
 *
 * Owns: their number, and that all have settled at the end. Must never: know their content, or repeat one.
 */
/**
 * Send them all and return their replies, in any order. The first error stops it, and is thrown.
 * @param {readonly string[]} bodies
 * @param {AbortSignal | undefined} signal
 * @param {(text: string, signal: AbortSignal | undefined) => Promise<Record<string, any>>} send
 * @returns {Promise<Record<string, any>[]>}
 */
export declare function paced(bodies: readonly string[], signal: AbortSignal | undefined, send: (text: string, signal: AbortSignal | undefined) => Promise<Record<string, any>>): Promise<Record<string, any>[]>;
