/**
 * A client's view of subscriptions that end automatically: those that it made, and those that it has to renew.
 *
 * Owns: the list of subscriptions that end when the client disconnects, and which subscriptions the client has to
 * renew. Must never: send anything, or read a clock. Callers pass the time, in ms as of `Date.now()`. SPEC sections 2.2
 * and 9.
 *
 * The list is as long as the program makes it. A program that uses no such subscriptions has an empty list.
 */
/**
 * Maximum number of topics in one renewing command. After a crash, many clients renew in the same seconds. So each
 * client sends its commands one by one, and each command is short.
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
/** The subscriptions of one client that end when it disconnects. */
export declare class Kept {
    #private;
    /** The grace time that an endpoint stated last. */
    graceMs: number;
    /** Whether the reply did not name all ended subscriptions. After the renewals, the next reply names the rest. */
    isUnsure: boolean;
    get size(): number;
    /** @returns {string[]} The topics of the list. A topic can occur twice. */
    get topics(): string[];
    get isDue(): boolean;
    /**
     * Note that an endpoint has accepted subscriptions to these topics, with this filter. `beganMs`: when the client sent
     * the first of several commands.
     * @param {readonly string[]} topics
     * @param {string | undefined} filter Its text.
     * @param {number | undefined} ttlS
     * @param {number} nowMs
     * @param {number} [beganMs]
     */
    subscribed(topics: readonly string[], filter: string | undefined, ttlS: number | undefined, nowMs: number, beganMs?: number): void;
    /**
     * Remove all subscriptions to these topics from the list.
     * @param {readonly string[]} topics
     */
    gone(topics: readonly string[]): void;
    /**
     * Remove these subscriptions from the list, because the client has unsubscribed, or has changed when they end.
     * @param {readonly string[]} topics
     * @param {string | undefined} filter Its text.
     */
    out(topics: readonly string[], filter: string | undefined): void;
    /**
     * Note that the client listens nowhere. A page does not notice when its machine sleeps, or when a network goes
     * silent. So the client has been away since it last heard from the endpoint.
     * @param {number} sinceMs When the client last heard from the endpoint.
     */
    left(sinceMs: number): void;
    /**
     * Process the reply to `listen`: which subscriptions are due, and which others have ended. `isLast`: the reply names
     * all other subscriptions, because the client has already renewed its own.
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
     * Return the next subscriptions that are due, with the rest of their time, or null if none is due.
     * @param {number} nowMs
     * @returns {Again | null}
     */
    take(nowMs: number): Again | null;
    /**
     * Make these subscriptions due again, because the attempt to renew them failed.
     * @param {Again} again
     */
    putBack({ topics, filter }: Again): void;
}
