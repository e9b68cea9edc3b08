/**
 * Limits how many commands of a large subscribe run at the same time.
 *
 * Owns: the number of running commands, and the wait until all have settled. Must never: know or repeat a command.
 */
/**
 * Send all commands, and return their replies in any order. The first error stops the sending, and is thrown.
 * @param {readonly string[]} bodies
 * @param {AbortSignal | undefined} signal
 * @param {(text: string, signal: AbortSignal | undefined) => Promise<Record<string, any>>} send
 * @returns {Promise<Record<string, any>[]>}
 */
export declare function paced(bodies: readonly string[], signal: AbortSignal | undefined, send: (text: string, signal: AbortSignal | undefined) => Promise<Record<string, any>>): Promise<Record<string, any>[]>;
