/**
 * What becomes of one client's subscriptions that end: noticed, subscribed to again, or told. SPEC section 9.
 *
 * Owns: the loop that subscribes again, and when it begins and ends. Must never: know a connection, or ask for two
 * things at a time: after a crash many clients do this in the same seconds.
 */
import { ProtocolError } from "./errors.js";
/** The close code with which an endpoint that was cut off says that subscriptions of its clients have ended. */
export declare const SUBSCRIPTIONS_ENDED = 4007;
import type { Again } from "./kept.js";
import type { Subscription } from "./listings.js";
export type Asking = {
    /**
     * The client's end.
     */
    signal: AbortSignal;
    /**
     * One try. null: it may be at another time;
     * a `ProtocolError`: it is refused for good.
     */
    subscribe: (again: Again) => Promise<Record<string, any>[] | null>;
    /**
     * Once more. null: there is no reply.
     */
    listen: () => Promise<Record<string, any> | null>;
    /**
     * How long to wait after so many failures in a row.
     */
    delayMs: (attempt: number) => number;
    /**
     * These are not renewed here.
     */
    onEnded: (subscriptions: Subscription[], count: number) => void;
    /**
     * Why, where that is the reason.
     */
    onRefused: (error: ProtocolError) => void;
    /**
     * What was due has been subscribed to again, or is given up.
     */
    onBack: () => void;
};
/** @import { Again } from "./kept.js" */
/** @import { Subscription } from "./listings.js" */
/**
 * @typedef {object} Asking What a client does for it.
 * @property {AbortSignal} signal The client's end.
 * @property {(again: Again) => Promise<Record<string, any>[] | null>} subscribe One try. null: it may be at another time;
 *   a `ProtocolError`: it is refused for good.
 * @property {() => Promise<Record<string, any> | null>} listen Once more. null: there is no reply.
 * @property {(attempt: number) => number} delayMs How long to wait after so many failures in a row.
 * @property {(subscriptions: Subscription[], count: number) => void} onEnded These are not renewed here.
 * @property {(error: ProtocolError) => void} onRefused Why, where that is the reason.
 * @property {() => void} onBack What was due has been subscribed to again, or is given up.
 */
/** One client's. Its loop runs only while something is due. */
export declare class Renewals {
    #private;
    /** @param {Asking} asking */
    constructor(asking: Asking);
    /** Some are due, or under way. */
    get isRenewing(): boolean;
    /** Of what it subscribes to again where it ends, some perhaps twice. */
    get topics(): string[];
    /**
     * There was success for these, with this filter and these fields for when they end: so many replies, to commands of
     * which the first was sent at `beganMs`.
     * @param {readonly string[]} topics
     * @param {string | undefined} filter Its text.
     * @param {Record<string, any>} fields
     * @param {readonly Record<string, any>[]} replies
     * @param {number} beganMs
     */
    subscribed(topics: readonly string[], filter: string | undefined, fields: Record<string, any>, replies: readonly Record<string, any>[], beganMs: number): void;
    /**
     * All at these topics was taken out, or is about to be.
     * @param {readonly string[]} topics
     */
    gone(topics: readonly string[]): void;
    /**
     * Those with this filter were taken out, or are about to be.
     * @param {readonly string[]} topics
     * @param {string} filter Its text.
     */
    out(topics: readonly string[], filter: string): void;
    /**
     * The client listens nowhere any more, for all it knows since then, in ms as of `Date.now()`.
     * @param {number} sinceMs
     */
    left(sinceMs: number): void;
    /**
     * The client listens: what the reply says has ended is told, or subscribed to again.
     * @param {Record<string, any>} reply
     * @param {boolean} [isLast]
     */
    listened(reply: Record<string, any>, isLast?: boolean): void;
}
