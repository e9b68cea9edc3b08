/**
 * Listings that a client reads page by page: its subscriptions, a topic's subscribers. SPEC sections 2.2 to 2.4.
 *
 * Owns: reading page after page, and the meaning of a page's rows. Must never: know a connection, or hold more than one
 * page. The caller supplies the function that sends a command.
 */
export type Ask = (command: string, fields: Record<string, unknown>) => Promise<Record<string, any>>;
export type Subscription = {
    topic: string;
    /**
     * Absent: all messages.
     */
    filter?: Record<string, any>;
    until?: "disconnect";
    /**
     * Unix time in seconds.
     */
    endsAt?: number;
};
export type Subscriber = {
    clientId: string;
    /**
     * Whether the subscriber listens somewhere.
     */
    online: boolean;
    /**
     * Whether the subscriber has only filters here, so that it does not get every message of
     * the topic.
     */
    filtered: boolean;
};
/**
 * Sends a command, given its name and fields, and resolves to its reply.
 * @typedef {(command: string, fields: Record<string, unknown>) => Promise<Record<string, any>>} Ask
 */
/**
 * @typedef {object} Subscription A client's subscription. Without `until` and `endsAt`, it does not end automatically.
 * @property {string} topic
 * @property {Record<string, any>} [filter] Absent: all messages.
 * @property {"disconnect"} [until]
 * @property {number} [endsAt] Unix time in seconds.
 */
/**
 * @typedef {object} Subscriber
 * @property {string} clientId
 * @property {boolean} online Whether the subscriber listens somewhere.
 * @property {boolean} filtered Whether the subscriber has only filters here, so that it does not get every message of
 *   the topic.
 */
/**
 * Yield the client's subscriptions, topic by topic.
 * @param {Ask} ask
 * @param {number} limit Topics per page.
 * @returns {AsyncGenerator<Subscription, void, void>}
 */
export declare function subscriptionsOf(ask: Ask, limit: number): AsyncGenerator<Subscription, void, void>;
/**
 * Yield a topic's subscribers in the order of their ids.
 * @param {Ask} ask
 * @param {string} topic
 * @param {number} limit Subscribers per page.
 * @returns {AsyncGenerator<Subscriber, void, void>}
 */
export declare function subscribersOf(ask: Ask, topic: string, limit: number): AsyncGenerator<Subscriber, void, void>;
