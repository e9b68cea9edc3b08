/**
 * A client's options: their defaults, and the checks of their values.
 *
 * Owns: which values are valid. Must never: use a value.
 */

import { checkBounds, checkWindow } from "./bounds.js";
import { POSITION_BYTES_MAX, isPosition } from "./history.js";
import { checkMs } from "./waiting.js";

/** @import { Bounds } from "./bounds.js" */
/** @import { Gap } from "./recovery.js" */
/** @import { ConnectionLost, ProtocolError, Unreachable } from "./errors.js" */
/** @import { Notification } from "./queue.js" */
/** @import { Subscription } from "./listings.js" */

/** The endpoints' default, SPEC section 1.4. */
export const FRAME_BYTES_MAX = 16 * 1024 * 1024;

/** Characters that are valid in a header and, percent-encoded, in a query. Every JWT consists of these characters. */
const TOKEN = /^[\x21-\x7e]+$/;

/**
 * @typedef {object} ClientOptions
 * @property {boolean} [listen] Listen as part of connecting. Default: false.
 * @property {boolean | string | { key: string }} [recover] Listen so that each missed retained message arrives once, or
 *   `onGap` reports that messages may be missing (SPEC section 8.10). true: from the first connection on. A string:
 *   since this position, which a program has saved. `key`: since the position in `localStorage` under this key, where
 *   the client also saves later positions. Endpoints that retain no messages refuse this with `bad_state`. Default:
 *   false.
 * @property {Bounds} [bounds] How stale and how incomplete the client's picture of its topics may become under load: a
 *   preset, or a list of rules (SPEC section 2.8). The client sends them with every `listen`. Default: the operator's
 *   rules, if there are any.
 * @property {number} [window] Maximum number of notifications, up to 100,000, that are on their way or wait in this
 *   client. At this number, the endpoint holds back messages with bounds (SPEC section 2.8). Default: no limit.
 * @property {number} [timeoutMs] Time limit of every command, including the wait for a connection. Default: 10,000.
 * @property {number} [queueMax] Maximum number of notifications that wait for the iterator or an async handler.
 *   Default: 10,000.
 * @property {"drop_oldest" | "pause"} [overflow] The action when the queue is full. `drop_oldest`, the default: drop
 *   the oldest notification, count it in `dropped` and pass it to `onDropped`. `pause`, in Node only: stop reading.
 *   Commands then wait as well, and the endpoint treats the client as a slow reader (SPEC section 1.4).
 * @property {number} [backoffBaseMs] Default: 100.
 * @property {number} [backoffMaxMs] Default: 10,000.
 * @property {number} [maxFrameBytes] The endpoints' limit for a message. Default: 16 MiB.
 * @property {string | (() => string | Promise<string>)} [token] For an endpoint that needs a token: the token, or a
 *   function that returns a token for each connection. An endpoint closes a connection whose token has expired.
 * @property {string | Uint8Array | readonly (string | Uint8Array)[]} [ca] Node only: certificates in PEM, of the
 *   authorities to trust instead of Node's own.
 * @property {"disconnect" | null} [until] The default for the option `until` of `subscribe`. Default: `"disconnect"` in
 *   a page, and otherwise null, so that subscriptions stay.
 * @property {boolean} [lines] Join messages that leave at the same moment, in both directions (SPEC section 1.6). This
 *   is cheaper under load. Default: false.
 * @property {() => number} [random] Returns a number in [0, 1), for the waits before connecting again. Default:
 *   `Math.random`.
 * @property {(key: string | null, broadcast: any, notification: Notification) => void | Promise<void>} [onNotification]
 *     Replaces the iterator. If it returns a promise, the next call waits until the promise is fulfilled.
 * @property {(gap: Gap) => void | Promise<void>} [onGap] Retained messages of these topics may be missing. Get the
 *   current state of these topics from another source. The client calls this handler where it would have handed over
 *   the missing messages, or earlier. If the handler returns a promise, the next notification waits for it. Without a
 *   handler, the client writes the report to the console.
 * @property {(error: ProtocolError) => void} [onError] A publish without `ack` has failed.
 * @property {(url: string) => void} [onConnected] The client has connected, for the first time or again.
 * @property {(error: ConnectionLost) => void} [onLost] A connection was lost.
 * @property {(error: Unreachable) => void} [onUnreachable] An attempt to connect again has failed.
 * @property {(notification: Notification, dropped: number) => void} [onDropped] The queue was full, so the client
 *   dropped this notification. `dropped`: the total number.
 * @property {(subscriptions: Subscription[], count: number) => void} [onEnded] Subscriptions have ended, and this
 *   client does not renew them. `subscriptions`: at most the latest 1,000, with `topic` and `filter`. `count`: the
 *   number of all.
 */

/**
 * @typedef {object} WaitOptions
 * @property {number} [timeoutMs] Replaces the client's `timeoutMs`.
 * @property {AbortSignal} [signal] When it is aborted, the wait ends with the signal's reason. A command that was
 *   already sent can still take effect.
 */

/**
 * @typedef {object} TermOptions
 * @property {"disconnect" | null} [until] `"disconnect"`: the subscription ends when the client has listened nowhere
 *   for the endpoints' grace time (60 s by default). null: the subscription stays. Default: the client's `until`, which
 *   is `"disconnect"` in a page.
 * @property {number} [ttlS] The subscription ends after this many seconds, 30 days at most. With both options, the
 *   earlier end counts.
 */

/**
 * @typedef {object} FilterOptions
 * @property {Record<string, any>} [filter] Get only messages whose payload matches (SPEC section 2.6).
 */

/**
 * @typedef {object} ReplaceOptions
 * @property {boolean} [replace] Replace all the client's subscriptions to these topics. Default: false.
 */

/**
 * @typedef {object} KeptOptions
 * @property {number} [last] First get this many of the latest retained messages of each topic, 1,000 at most.
 * @property {string} [since] First get the retained messages since this position. You cannot combine it with `last`.
 */

/** @typedef {TermOptions & FilterOptions & ReplaceOptions & KeptOptions & WaitOptions} SubscribeOptions */

/** @typedef {FilterOptions & WaitOptions} UnsubscribeOptions */

/**
 * @typedef {object} BroadcastOptions
 * @property {boolean} [ack] Wait until the message is in the outboxes of all recipients' endpoints. Default: false.
 * @property {boolean | string} [dedup] Which publish counts as a duplicate (SPEC section 7). true, the default: a
 *   publish with the same payload by any publisher within the time-to-live. `"retry"`: only a retry of this same
 *   publish, for values that change back and forth ("paid", "on hold", "paid"). false: none. Any other string: a
 *   publish of this client with the same key as an earlier one. The same key with another payload is the error
 *   `conflict`.
 */

/**
 * @typedef {object} AboutOptions
 * @property {string} [item] The part of the topic's state that the message is about, 1 to 128 bytes. With
 *   `deliver: "latest"`, a client gets only the newest held message of each item. Default: one part for all messages
 *   without an item.
 * @property {number} [weight] How much a client lacks without the message, from 0 to 1,000,000. The field `numerical`
 *   of a rule bounds the sum of these weights. Default: 1.
 */

/**
 * @typedef {BroadcastOptions & AboutOptions & { timestamp?: number, keepS?: number }} PublishOptions `timestamp`: ms
 *   since the epoch. `keepS`: endpoints retain the message for this many seconds, a day at most, for clients that miss
 *   it.
 */

/**
 * @typedef {object} HistoryOptions
 * @property {number} [last] Get this many of the latest messages, 1,000 at most. Default: `limit`.
 * @property {string} [since] Get the messages after the message with this `mid`. You cannot combine it with `last`.
 * @property {number} [limit] Maximum number of messages in the reply. Default: 100, at most 1,000.
 * @property {Record<string, any>} [filter] Get only messages whose payload matches (SPEC section 2.6).
 */

/**
 * Return the complete options, with defaults for missing options.
 * @param {ClientOptions} options
 */
export function checkOptions(options) {
  const checked = {
    timeoutMs: checkMs("timeoutMs", options.timeoutMs ?? 10_000),
    queueMax: checkCount("queueMax", options.queueMax ?? 10_000),
    overflow: options.overflow ?? "drop_oldest",
    backoffBaseMs: checkMs("backoffBaseMs", options.backoffBaseMs ?? 100),
    backoffMaxMs: checkMs("backoffMaxMs", options.backoffMaxMs ?? 10_000),
    maxFrameBytes: checkCount("maxFrameBytes", options.maxFrameBytes ?? FRAME_BYTES_MAX),
    token: options.token,
    ca: options.ca,
    lines: options.lines ?? false,
    until: options.until,
    bounds: options.bounds === undefined ? undefined : checkBounds(options.bounds),
    window: options.window === undefined ? undefined : checkWindow(options.window),
    recover: checkRecover(options.recover ?? false),
    random: options.random ?? Math.random,
    onNotification: options.onNotification,
    onError: options.onError,
    onConnected: options.onConnected,
    onLost: options.onLost,
    onUnreachable: options.onUnreachable,
    onDropped: options.onDropped,
    onEnded: options.onEnded,
    onGap: options.onGap,
  };
  if (options.until !== undefined && options.until !== null && options.until !== "disconnect") {
    throw new TypeError("until has to be 'disconnect' or null");
  }
  if (checked.overflow !== "drop_oldest" && checked.overflow !== "pause") {
    throw new TypeError("overflow has to be 'drop_oldest' or 'pause'");
  }
  if (options.token !== undefined && typeof options.token !== "function") checkToken(options.token);
  return checked;
}

/**
 * Check a URL. The error does not contain a refused URL, because a part in the wrong place may be a password.
 * @param {string} text
 */
export function checkUrl(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    throw new TypeError("that is not a URL; give one such as wss://broker.example");
  }
  if (url.protocol !== "ws:" && url.protocol !== "wss:") throw new TypeError("that is not a ws: or wss: URL");
  if (url.hash !== "") throw new TypeError("a WebSocket URL has no fragment");
  if (url.username !== "" || url.password !== "") throw new TypeError("a URL must not contain a name or a password: use `token`");
  if (url.searchParams.has("access_token")) throw new TypeError("a URL must not contain a token: use `token`");
}

/**
 * Return the URL for errors, without its query, which can contain a token under any name.
 * @param {string} url
 */
export function shown(url) {
  return url.replace(/[?#].*$/s, "");
}

/**
 * @param {unknown} token
 * @returns {string}
 */
export function checkToken(token) {
  if (typeof token !== "string" || !TOKEN.test(token)) {
    throw new TypeError("a token has to be a string of visible ASCII characters"); // without the token
  }
  return token;
}

/**
 * @param {ClientOptions["recover"] & {}} recover
 */
function checkRecover(recover) {
  if (typeof recover === "boolean" || isPosition(recover)) return recover;
  if (typeof recover === "object" && typeof recover?.key === "string" && recover.key !== "") return recover;
  throw new TypeError(
    `recover has to be true, a position (a string of 1 to ${POSITION_BYTES_MAX} bytes), or { key: "a key of localStorage" }`,
  );
}

/**
 * @param {string} name
 * @param {unknown} count
 */
function checkCount(name, count) {
  if (!Number.isSafeInteger(count) || Number(count) < 1) throw new TypeError(`${name} has to be a whole number above 0`);
  return Number(count);
}
