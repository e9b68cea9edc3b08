/**
 * Listings that a client reads page by page: its subscriptions, a topic's subscribers. SPEC sections 2.2 to 2.4.
 *
 * Owns: reading page after page, and the meaning of a page's rows. Must never: know a connection, or hold more than one
 * page. The caller supplies the function that sends a command.
 */

import { checkTopic } from "./text.js";

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
export async function* subscriptionsOf(ask, limit) {
  for await (const page of pages(ask, "subscriptions", { limit })) {
    const told = new Map(Object.entries(page.subscriptions ?? {}));
    for (const topic of page.topic) {
      for (const { filter, until, ends_at: endsAt } of told.get(topic) ?? [{}]) {
        yield { topic, ...(filter && { filter }), ...(until && { until }), ...(endsAt && { endsAt }) };
      }
    }
  }
}

/**
 * Yield a topic's subscribers in the order of their ids.
 * @param {Ask} ask
 * @param {string} topic
 * @param {number} limit Subscribers per page.
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
