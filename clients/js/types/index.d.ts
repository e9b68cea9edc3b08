/**
 * The client for browsers, and for other environments with a browser's `WebSocket`. A page can import this file
 * unchanged.
 *
 * In Node, import `ingeborg-client` (package.json leads to node.js). This file works there as well: it loads Node's
 * connection when it needs one. It must never import a `node:` module directly, because then no page could load it.
 */
import { Client as AnyClient } from "./client.js";
export * from "./errors.js";
export { checkClientId, checkTopic } from "./text.js";
export type ClientOptions = import("./options.js").ClientOptions;
export type WaitOptions = import("./options.js").WaitOptions;
export type SubscribeOptions = import("./options.js").SubscribeOptions;
export type UnsubscribeOptions = import("./options.js").UnsubscribeOptions;
export type BroadcastOptions = import("./options.js").BroadcastOptions;
export type PublishOptions = import("./options.js").PublishOptions;
export type HistoryOptions = import("./options.js").HistoryOptions;
export type Bounds = import("./bounds.js").Bounds;
export type Rule = import("./bounds.js").Rule;
export type Next = import("./errors.js").Next;
export type History = import("./history.js").History;
export type Publication = import("./history.js").Publication;
export type Notification = import("./queue.js").Notification;
export type Gap = import("./recovery.js").Gap;
export type Subscriber = import("./listings.js").Subscriber;
export type Subscription = import("./listings.js").Subscription;
/** @import { Connect } from "./transport.js" */
/** @typedef {import("./options.js").ClientOptions} ClientOptions */
/** @typedef {import("./options.js").WaitOptions} WaitOptions */
/** @typedef {import("./options.js").SubscribeOptions} SubscribeOptions */
/** @typedef {import("./options.js").UnsubscribeOptions} UnsubscribeOptions */
/** @typedef {import("./options.js").BroadcastOptions} BroadcastOptions */
/** @typedef {import("./options.js").PublishOptions} PublishOptions */
/** @typedef {import("./options.js").HistoryOptions} HistoryOptions */
/** @typedef {import("./bounds.js").Bounds} Bounds */
/** @typedef {import("./bounds.js").Rule} Rule */
/** @typedef {import("./errors.js").Next} Next */
/** @typedef {import("./history.js").History} History */
/** @typedef {import("./history.js").Publication} Publication */
/** @typedef {import("./queue.js").Notification} Notification */
/** @typedef {import("./recovery.js").Gap} Gap */
/** @typedef {import("./listings.js").Subscriber} Subscriber */
/** @typedef {import("./listings.js").Subscription} Subscription */
export declare class Client extends AnyClient {
}
