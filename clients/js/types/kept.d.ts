/**
 * A client's view of subscriptions that end automatically: those it made, and those it has to renew.
 *
 * Owns: the list of subscriptions until the client disconnects, and which ones the client has to renew. Must never: send
 * anything, or read a clock: the time, in ms as of `Date.now()`, comes in as an argument. SPEC sections 2.2 and 9.
 *
 * The list is as long as the program makes it; a program that uses no such subscriptions has an empty one.
 */
/**
 * Maximum number of topics in one renewing command: after a crash many clients renew in the same seconds, so each sends
 * one command after the other, and none is long.
 */
export declare const AGAIN_TOPICS_MAX = 1000;
import type { Subscription } from "./listings.js";
export type Again = {
    topics: string[];
    filter?: string;
    fields: Record<string, unknown>;
};
/**
 * @param {string} topic
 * @param {string} [filter] Its text.
 * @returns {Subscription}
 */
export declare const subscriptionOf: (topic: string, filter?: string) => Subscription;
/** One client's subscriptions until it disconnects. */
export declare class Kept {
    #private;
    /** The grace time, as an endpoint stated it last. */
    graceMs: number;
    /** The reply did not name all that had ended: once these are renewed, the next reply names the rest. */
    isUnsure: boolean;
    get size(): number;
    /** @returns {string[]} The topics of the list, some perhaps twice. */
    get topics(): string[];
    get isDue(): boolean;
    /**
     * Note that an endpoint has accepted these, with this filter. `beganMs`: when the first of several commands left.
     * @param {readonly string[]} topics
     * @param {string | undefined} filter Its text.
     * @param {number | undefined} ttlS
     * @param {number} nowMs
     * @param {number} [beganMs]
     */
    subscribed(topics: readonly string[], filter: string | undefined, ttlS: number | undefined, nowMs: number, beganMs?: number): void;
    /**
     * Remove everything at these topics from the list.
     * @param {readonly string[]} topics
     */
    gone(topics: readonly string[]): void;
    /**
     * Remove these from the list: the client has unsubscribed, or they have a new term.
     * @param {readonly string[]} topics
     * @param {string | undefined} filter Its text.
     */
    out(topics: readonly string[], filter: string | undefined): void;
    /**
     * Note that it listens nowhere, for all it knows since then: when it last heard from the endpoint. A page does not
     * notice when its machine sleeps, or when a network goes silent.
     * @param {number} sinceMs
     */
    left(sinceMs: number): void;
    /**
     * Process the reply to `listen`: which subscriptions are due, and which others have ended. `isLast`: the reply names
     * all the others, since the client has already renewed its own. @param {Record<string, any>} reply
     * @param {number} nowMs
     * @param {boolean} isLast
     * @returns {{ subscriptions: Subscription[], count: number } | null}
     */
    listened(reply: Record<string, any>, nowMs: number, isLast: boolean): {
        subscriptions: Subscription[];
        count: number;
    } | null;
    /**
     * The next ones that are due, with the rest of their time; null: none is.
     * @param {number} nowMs
     * @returns {Again | null}
     */
    take(nowMs: number): Again | null;
    /**
     * That failed: they are due again.
     * @param {Again} again
     */
    putBack({ topics, filter }: Again): void;
}
