/**
 * Subscriptions that end by themselves, as a client sees them: what it has asked for, and what it asks for again.
 *
 * Owns: the list of subscriptions until the client disconnects, and which of them the client has to ask for again. Must
 * never: send anything, or read a clock: the time, in ms as of `Date.now()`, comes in as an argument. SPEC sections 2.2
 * and 9.
 *
 * The list is as long as the program makes it; a program that uses no such subscriptions has an empty one.
 */
/**
 * Topics that are subscribed to again in one command: many clients do this in the same seconds, after a crash, so each
 * sends one command after the other, and none is long.
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
    /** As an endpoint said last. */
    graceMs: number;
    /** More had ended than were named: whose they are is known when these are subscribed to. */
    isUnsure: boolean;
    get size(): number;
    /** @returns {string[]} Of all that are in the list, some perhaps twice. */
    get topics(): string[];
    get isDue(): boolean;
    /**
     * An endpoint has accepted these, with this filter. `beganMs`: when the first of several commands was sent.
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
     * Remove these from the list: the client has unsubscribed, or they have another term now.
     * @param {readonly string[]} topics
     * @param {string | undefined} filter Its text.
     */
    out(topics: readonly string[], filter: string | undefined): void;
    /**
     * It listens nowhere any more, for all it knows since then: what was heard last of the endpoint. A page does not
     * notice when its machine sleeps, or when a network goes silent.
     * @param {number} sinceMs
     */
    left(sinceMs: number): void;
    /**
     * The reply to `listen` has come: what is due is known, and what has ended that is not in the list. `isLast`: what the
     * reply names is none of these any more, since they have been subscribed to again.
     * @param {Record<string, any>} reply
     * @param {number} nowMs
     * @param {boolean} isLast
     * @returns {{ subscriptions: Subscription[], count: number } | null}
     */
    listened(reply: Record<string, any>, nowMs: number, isLast: boolean): {
        subscriptions: Subscription[];
        count: number;
    } | null;
    /**
     * The next ones that are due, with what is left of their time; null: there are none.
     * @param {number} nowMs
     * @returns {Again | null}
     */
    take(nowMs: number): Again | null;
    /**
     * That did not work: they are due still.
     * @param {Again} again
     */
    putBack({ topics, filter }: Again): void;
}
