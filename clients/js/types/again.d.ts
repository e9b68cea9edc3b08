/**
 * Handles the subscriptions of one client that end: notices the end, and subscribes again or reports it. SPEC section
 * 9.
 *
 * Owns: the loop that subscribes again, and when it begins and ends. Must never: know a connection, or send two
 * commands at the same time, because after a crash many clients subscribe again in the same seconds.
 */
import { ProtocolError } from "./errors.js";
/** The close code by which an endpoint that was cut off says that subscriptions of its clients have ended. */
export declare const SUBSCRIPTIONS_ENDED = 4007;
import type { Again } from "./kept.js";
import type { Subscription } from "./listings.js";
export type Asking = {
    /**
     * Aborted when the client ends.
     */
    signal: AbortSignal;
    /**
     * Try once. Resolves to null if another
     * try may succeed. Throws a `ProtocolError` if the endpoint refuses permanently.
     */
    subscribe: (again: Again) => Promise<Record<string, any>[] | null>;
    /**
     * Listen once more. Resolves to null if no reply arrives.
     */
    listen: () => Promise<Record<string, any> | null>;
    /**
     * The wait after this many failures in a row.
     */
    delayMs: (attempt: number) => number;
    /**
     * Reports subscriptions that have ended and
     * that the client does not renew.
     */
    onEnded: (subscriptions: Subscription[], count: number) => void;
    /**
     * Reports why an endpoint refused subscriptions.
     */
    onRefused: (error: ProtocolError) => void;
    /**
     * Called when the client has renewed all due subscriptions, or has given them up.
     */
    onBack: () => void;
};
/** @import { Again } from "./kept.js" */
/** @import { Subscription } from "./listings.js" */
/**
 * @typedef {object} Asking What the client provides.
 * @property {AbortSignal} signal Aborted when the client ends.
 * @property {(again: Again) => Promise<Record<string, any>[] | null>} subscribe Try once. Resolves to null if another
 *   try may succeed. Throws a `ProtocolError` if the endpoint refuses permanently.
 * @property {() => Promise<Record<string, any> | null>} listen Listen once more. Resolves to null if no reply arrives.
 * @property {(attempt: number) => number} delayMs The wait after this many failures in a row.
 * @property {(subscriptions: Subscription[], count: number) => void} onEnded Reports subscriptions that have ended and
 *   that the client does not renew.
 * @property {(error: ProtocolError) => void} onRefused Reports why an endpoint refused subscriptions.
 * @property {() => void} onBack Called when the client has renewed all due subscriptions, or has given them up.
 */
/** The renewals of one client. The loop runs only while renewals are due. */
export declare class Renewals {
    #private;
    /** @param {Asking} asking */
    constructor(asking: Asking);
    /** Whether renewals are due or running. */
    get isRenewing(): boolean;
    /** The topics of the subscriptions that the client renews when they end. A topic can occur twice. */
    get topics(): string[];
    /**
     * Note a successful subscribe: its topics, filter, fields for the end, and replies. The client sent the first of its
     * commands at `beganMs`.
     * @param {readonly string[]} topics
     * @param {string | undefined} filter Its text.
     * @param {Record<string, any>} fields
     * @param {readonly Record<string, any>[]} replies
     * @param {number} beganMs
     */
    subscribed(topics: readonly string[], filter: string | undefined, fields: Record<string, any>, replies: readonly Record<string, any>[], beganMs: number): void;
    /**
     * Note that all subscriptions to these topics have been removed, or are about to be removed.
     * @param {readonly string[]} topics
     */
    gone(topics: readonly string[]): void;
    /**
     * Note that the subscriptions with this filter have been removed, or are about to be removed.
     * @param {readonly string[]} topics
     * @param {string} filter Its text.
     */
    out(topics: readonly string[], filter: string): void;
    /**
     * Note that the client listens nowhere.
     * @param {number} sinceMs Since when, as far as the client knows, in ms as of `Date.now()`.
     */
    left(sinceMs: number): void;
    /**
     * Process the reply to a `listen`: report the ended subscriptions that it names, or subscribe to them again.
     * @param {Record<string, any>} reply
     * @param {boolean} [isLast]
     */
    listened(reply: Record<string, any>, isLast?: boolean): void;
}
