/**
 * A client's options: their defaults, and the checks of their values.
 *
 * Owns: which values are valid. Must never: use one.
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

/** Characters that are valid in a header and, percent-encoded, in a query; every JWT consists of these. */
const TOKEN = /^[\x21-\x7e]+$/;

/**
 * @typedef {object} ClientOptions
 * @property {boolean} [listen] Listen as part of connecting. Default: false.
 * @property {boolean | string | { key: string }} [recover] Listen so that missed retained messages come, each once, or
 *   `onGap` reports them (SPEC section 8.10). true: from the first connection on. A string: since this position, which
 *   a program has saved. `key`: since the position in `localStorage` under this key, where the client saves it from
 *   then on. Endpoints that retain no messages refuse it: `bad_state`. Default: false.
 * @property {Bounds} [bounds] How stale and how incomplete the client's picture of its topics may become under load: a
 *   preset, or a list of rules (SPEC section 2.8). Part of every `listen`. Default: the operator's rules, if there are.
 * @property {number} [window] The most notifications, up to 100,000, that may be on their way or wait in this client
 *   before the endpoint holds bounded ones back (SPEC section 2.8). Default: no limit.
 * @property {number} [timeoutMs] Bounds every command, including the wait for a connection. Default: 10,000.
 * @property {number} [queueMax] Notifications that wait for the iterator or an async handler. Default: 10,000.
 * @property {"drop_oldest" | "pause"} [overflow] The action when the queue is full. `drop_oldest`, the default: drop
 *   the oldest, count it in `dropped` and pass it to `onDropped`. `pause`, in Node only: stop reading; commands then
 *   wait as well, and the endpoint deals with a slow reader (SPEC section 1.4).
 * @property {number} [backoffBaseMs] Default: 100.
 * @property {number} [backoffMaxMs] Default: 10,000.
 * @property {number} [maxFrameBytes] The endpoints' limit for a message. Default: 16 MiB.
 * @property {string | (() => string | Promise<string>)} [token] For an endpoint that needs one: the token, or a
 *   function that returns one for each connection, since an endpoint closes a connection whose token has expired.
 * @property {string | Uint8Array | readonly (string | Uint8Array)[]} [ca] Node only: certificates of the authorities to
 *   trust instead of Node's own, PEM.
 * @property {"disconnect" | null} [until] The default of `subscribe`'s `until`. Default: `"disconnect"` in a page, else
 *   null: subscriptions stay.
 * @property {boolean} [lines] Messages that leave at the same moment are joined, each way (SPEC section 1.6): cheaper
 *   under load. Default: false.
 * @property {() => number} [random] In [0, 1), for the waits before connecting again. Default: `Math.random`.
 * @property {(key: string | null, broadcast: any, notification: Notification) => void | Promise<void>} [onNotification]
 *   Replaces the iterator. If it returns a promise, the next call waits until that is fulfilled.
 * @property {(gap: Gap) => void | Promise<void>} [onGap] Retained messages of these topics may be missing since the
 *   position: check their state by other means. The call is made where the messages would have been handed over, or
 *   earlier. If it returns a promise, the next notification waits for it. Without a handler the console gets the
 *   report.
 * @property {(error: ProtocolError) => void} [onError] A publish without `ack` has failed.
 * @property {(url: string) => void} [onConnected] There is a connection, the first or another one.
 * @property {(error: ConnectionLost) => void} [onLost] A connection was lost.
 * @property {(error: Unreachable) => void} [onUnreachable] An attempt to connect again has failed.
 * @property {(notification: Notification, dropped: number) => void} [onDropped] The queue was full. `dropped`: how many
 *   in total.
 * @property {(subscriptions: Subscription[], count: number) => void} [onEnded] Subscriptions have ended, and this
 *   client does not renew them: the latest 1,000 at most, with `topic` and `filter`, and their number.
 */

/**
 * @typedef {object} WaitOptions
 * @property {number} [timeoutMs] Replaces the client's.
 * @property {AbortSignal} [signal] Stops waiting, with the signal's reason; a command already sent can still take
 *   effect.
 */

/**
 * @typedef {object} TermOptions
 * @property {"disconnect" | null} [until] `"disconnect"`: the subscription ends when the client has listened nowhere for the
 *   endpoints' grace time (60 s by default). null: it stays. Default: the client's, which is `"disconnect"` in a page.
 * @property {number} [ttlS] It ends after this many seconds, 30 days at most; with both, at the earlier end.
 */

/**
 * @typedef {object} FilterOptions
 * @property {Record<string, any>} [filter] Only messages whose payload matches: SPEC section 2.6.
 */

/**
 * @typedef {object} ReplaceOptions
 * @property {boolean} [replace] Replaces everything that the client has at these topics. Default: false.
 */

/**
 * @typedef {object} KeptOptions
 * @property {number} [last] The number of latest retained messages of each topic that come first, 1,000 at most.
 * @property {string} [since] Retained messages since this position come first. It excludes `last`.
 */

/** @typedef {TermOptions & FilterOptions & ReplaceOptions & KeptOptions & WaitOptions} SubscribeOptions */

/** @typedef {FilterOptions & WaitOptions} UnsubscribeOptions */

/**
 * @typedef {object} BroadcastOptions
 * @property {boolean} [ack] Wait until it is in the outboxes of all recipients' endpoints. Default: false.
 * @property {boolean | string} [dedup] The meaning of a duplicate, SPEC section 7. Default: true, the same payload from
 *   any publisher within the time-to-live. `"retry"`: only a retry of this same publish; for values that change back
 *   and forth ("paid", "on hold", "paid"). false: nothing. Any other string: an earlier publish of this client with the
 *   same key; with another payload that is the error `conflict`.
 */

/**
 * @typedef {object} AboutOptions
 * @property {string} [item] The part of the topic's state that the message is about, 1 to 128 bytes. With `deliver:
 *   "latest"` a client gets only the newest held message of each item. Default: a part that all these messages share.
 * @property {number} [weight] How much a client lacks that does not have the message yet, from 0 to 1,000,000: the
 *   rules' `numerical` bounds the sum. Default: 1.
 */

/**
 * @typedef {BroadcastOptions & AboutOptions & { timestamp?: number, keepS?: number }} PublishOptions `timestamp`: ms
 *   since the epoch. `keepS`: endpoints retain it for this many seconds, a day at most, for clients that miss it.
 */

/**
 * @typedef {object} HistoryOptions
 * @property {number} [last] This many of the latest, 1,000 at most. Default: `limit`.
 * @property {string} [since] Those after the message with this `mid`. It excludes `last`.
 * @property {number} [limit] Maximum number of messages in the reply. Default: 100, at most 1,000.
 * @property {Record<string, any>} [filter] Only those whose payload matches: SPEC section 2.6.
 */

/**
 * The complete options, with defaults for missing ones.
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
 * Check a URL. The error does not repeat a refused one: a part in the wrong place may be a password.
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
 * The URL for errors: without its query, which can have a token under any name.
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
