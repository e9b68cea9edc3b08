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

export class Client extends AnyClient {
  /** @internal */
  static get isInPage() {
    return isPage();
  }

  /**
   * @internal
   * @type {Connect}
   */
  static connectSocket = async (url, options) => {
    const { connect } = await import(isNode() ? NODE : "./web-socket.js");
    return connect(url, options);
  };
}

/** The `import` takes this variable and not a literal, so that bundlers for browsers skip the file. */
const NODE = "./node-socket.js";

/** Return whether a window shows a document, which is never so in Node and in a worker. */
function isPage() {
  return typeof window !== "undefined" && typeof document !== "undefined";
}

function isNode() {
  return typeof process !== "undefined" && process.versions?.node !== undefined && typeof window === "undefined";
}
