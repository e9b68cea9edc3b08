/**
 * What a client asks for page by page: its subscriptions, a topic's subscribers. SPEC sections 2.2 to 2.4.
 *
 * Owns: how pages are asked for one after the other, and what their rows mean. Must never: know a connection: whoever
 * calls it brings what sends a command. No more than one page is held.
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
     * It listens somewhere.
     */
    online: boolean;
    /**
     * It has filters only, so that not every message of the topic is sent to it.
     */
    filtered: boolean;
};
/**
 * A command by its name and its fields: its reply.
 * @typedef {(command: string, fields: Record<string, unknown>) => Promise<Record<string, any>>} Ask
 */
/**
 * @typedef {object} Subscription One of a client; it stays where it has neither `until` nor `endsAt`.
 * @property {string} topic
 * @property {Record<string, any>} [filter] Absent: all messages.
 * @property {"disconnect"} [until]
 * @property {number} [endsAt] Unix time in seconds.
 */
/**
 * @typedef {object} Subscriber
 * @property {string} clientId
 * @property {boolean} online It listens somewhere.
 * @property {boolean} filtered It has filters only, so that not every message of the topic is sent to it.
 */
/**
 * The client's subscriptions, topic by topic.
 * @param {Ask} ask
 * @param {number} limit Of a page, in topics.
 * @returns {AsyncGenerator<Subscription, void, void>}
 */
export declare function subscriptionsOf(ask: Ask, limit: number): AsyncGenerator<Subscription, void, void>;
/**
 * A topic's subscribers in the order of their ids.
 * @param {Ask} ask
 * @param {string} topic
 * @param {number} limit Of a page.
 * @returns {AsyncGenerator<Subscriber, void, void>}
 */
export declare function subscribersOf(ask: Ask, topic: string, limit: number): AsyncGenerator<Subscriber, void, void>;
