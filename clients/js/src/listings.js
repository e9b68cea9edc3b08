/**
 * What a client asks for page by page: its topics, its filters, a topic's subscribers. SPEC sections 2.2 to 2.4.
 *
 * Owns: how pages are asked for one after the other, and what their rows mean. Must never: know a connection: whoever
 * calls it brings what sends a command. No more than one page is held.
 */

import { checkTopic } from "./text.js";

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
export async function* topicsOf(ask, limit) {
  for await (const page of pages(ask, "subscriptions", { limit })) yield* page.topic;
}

/**
 * Those at which it has filters.
 * @param {Ask} ask
 * @param {number} limit Of a page of topics of any kind.
 * @returns {AsyncGenerator<Filtered, void, void>}
 */
export async function* filteredOf(ask, limit) {
  for await (const page of pages(ask, "subscriptions", { limit })) {
    for (const [topic, filters] of Object.entries(page.filters ?? {})) yield { topic, filters };
  }
}

/**
 * A topic's subscribers in the order of their ids.
 * @param {Ask} ask
 * @param {string} topic
 * @param {number} limit Of a page.
 * @returns {AsyncGenerator<Subscriber, void, void>}
 */
export async function* subscribersOf(ask, topic, limit) {
  for await (const page of pages(ask, "subscribers", { topic: checkTopic(topic), limit })) {
    for (const { client_id: clientId, online, filtered = false } of page.subscribers) yield { clientId, online, filtered };
  }
}

/**
 * @param {Ask} ask
 * @param {string} command
 * @param {Record<string, unknown>} fields
 * @returns {AsyncGenerator<Record<string, any>, void, void>}
 */
async function* pages(ask, command, fields) {
  let cursor = null;
  do {
    const page = await ask(command, cursor === null ? fields : { ...fields, cursor });
    yield page;
    cursor = page.cursor ?? null;
  } while (cursor !== null);
}
