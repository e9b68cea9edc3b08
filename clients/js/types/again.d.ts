/**
 * Handles one client's subscriptions that end: notices them, and subscribes again or reports them. SPEC section 9.
 *
 * Owns: the loop that subscribes again, and when it begins and ends. Must never: know a connection, or send two
 * commands at a time: after a crash many clients do this in the same seconds.
 */
import { ProtocolError } from "./errors.js";
/** The close code of an endpoint that was cut off, when subscriptions of its clients have ended. */
export declare const SUBSCRIPTIONS_ENDED = 4007;
import type { Again } from "./kept.js";
import type { Subscription } from "./listings.js";
export type Asking = {
    /**
     * The client's end.
     */
    signal: AbortSignal;
    /**
     * Try once. null: another try may
     * succeed; a `ProtocolError`: the endpoint refuses for good.
     */
    subscribe: (again: Again) => Promise<Record<string, any>[] | null>;
    /**
     * Listen once more. null: no reply arrived.
     */
    listen: () => Promise<Record<string, any> | null>;
    /**
     * The wait after this many failures in a row.
     */
    delayMs: (attempt: number) => number;
    /**
     * These ended, and are not renewed here.
     */
    onEnded: (subscriptions: Subscription[], count: number) => void;
    /**
     * The reason, if an endpoint refused them.
     */
    onRefused: (error: ProtocolError) => void;
    /**
     * The client has subscribed again to all that were due, or has given them up.
     */
    onBack: () => void;
};
/** @import { Again } from "./kept.js" */
/** @import { Subscription } from "./listings.js" */
/**
 * @typedef {object} Asking What the client provides.
 * @property {AbortSignal} signal The client's end.
 * @property {(again: Again) => Promise<Record<string, any>[] | null>} subscribe Try once. null: another try may
 *   succeed; a `ProtocolError`: the endpoint refuses for good.
 * @property {() => Promise<Record<string, any> | null>} listen Listen once more. null: no reply arrived.
 * @property {(attempt: number) => number} delayMs The wait after this many failures in a row.
 * @property {(subscriptions: Subscription[], count: number) => void} onEnded These ended, and are not renewed here.
 * @property {(error: ProtocolError) => void} onRefused The reason, if an endpoint refused them.
 * @property {() => void} onBack The client has subscribed again to all that were due, or has given them up.
 */
/** The renewals of one client. The loop runs only while some are due. */
export declare class Renewals {
    #private;
    /** @param {Asking} asking */
    constructor(asking: Asking);
    /** Whether some are due, or under way. */
    get isRenewing(): boolean;
    /** The topics to which it subscribes again when they end, some perhaps twice. */
    get topics(): string[];
    /**
     * Note a successful subscribe: its topics, filter, fields for the end, and replies. The first of its commands left at
     * `beganMs`.
     * @param {readonly string[]} topics
     * @param {string | undefined} filter Its text.
     * @param {Record<string, any>} fields
     * @param {readonly Record<string, any>[]} replies
     * @param {number} beganMs
     */
    subscribed(topics: readonly string[], filter: string | undefined, fields: Record<string, any>, replies: readonly Record<string, any>[], beganMs: number): void;
    /**
     * Note that everything at these topics has been removed, or is about to be.
     * @param {readonly string[]} topics
     */
    gone(topics: readonly string[]): void;
    /**
     * Note that the subscriptions with this filter have been removed, or are about to be.
     * @param {readonly string[]} topics
     * @param {string} filter Its text.
     */
    out(topics: readonly string[], filter: string): void;
    /**
     * Note that the client listens nowhere, for all it knows since then, in ms as of `Date.now()`.
     * @param {number} sinceMs
     */
    left(sinceMs: number): void;
    /**
     * Process the reply to a `listen`: report the ended subscriptions that it names, or subscribe to them again.
     * @param {Record<string, any>} reply
     * @param {boolean} [isLast]
     */
    listened(reply: Record<string, any>, isLast?: boolean): void;
}
