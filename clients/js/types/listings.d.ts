/**
 * What a client asks for page by page: its topics, its filters, a topic's subscribers. SPEC sections 2.2 to 2.4.
 *
 * Owns: how pages are asked for one after the other, and what their rows mean. Must never: know a connection: whoever
 * calls it brings what sends a command. No more than one page is held.
 */
export type Ask = (command: string, fields: Record<string, unknown>) => Promise<Record<string, any>>;
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
export type Filtered = {
    topic: string;
    filters: Record<string, any>[];
};
/**
 * A command by its name and its fields: its reply.
 * @typedef {(command: string, fields: Record<string, unknown>) => Promise<Record<string, any>>} Ask
 */
/**
 * @typedef {object} Subscriber
 * @property {string} clientId
 * @property {boolean} online It listens somewhere.
 * @property {boolean} filtered It has filters only, so that not every message of the topic is sent to it.
 */
/**
 * A topic at which a client has filters: any of them suffices. Where the client has another subscription to the topic
 * beside them, it is sent every message.
 * @typedef {object} Filtered
 * @property {string} topic
 * @property {Record<string, any>[]} filters
 */
/**
 * The client's topics.
 * @param {Ask} ask
 * @param {number} limit Of a page.
 * @returns {AsyncGenerator<string, void, void>}
 */
export declare function topicsOf(ask: Ask, limit: number): AsyncGenerator<string, void, void>;
/**
 * Those at which it has filters.
 * @param {Ask} ask
 * @param {number} limit Of a page of topics of any kind.
 * @returns {AsyncGenerator<Filtered, void, void>}
 */
export declare function filteredOf(ask: Ask, limit: number): AsyncGenerator<Filtered, void, void>;
/**
 * A topic's subscribers in the order of their ids.
 * @param {Ask} ask
 * @param {string} topic
 * @param {number} limit Of a page.
 * @returns {AsyncGenerator<Subscriber, void, void>}
 */
export declare function subscribersOf(ask: Ask, topic: string, limit: number): AsyncGenerator<Subscriber, void, void>;
