/**
 * What a client may be told when it is made: the options, their defaults, and what makes no sense.
 *
 * Owns: which values are right. Must never: use one.
 */

import { POSITION_BYTES_MAX, isPosition } from "./history.js";
import { checkMs } from "./waiting.js";

/** @import { Gap } from "./recovery.js" */
/** @import { ConnectionLost, ProtocolError, Unreachable } from "./errors.js" */
/** @import { Notification } from "./queue.js" */
/** @import { Subscription } from "./listings.js" */

/** The endpoints' default, SPEC section 1.4. */
export const FRAME_BYTES_MAX = 16 * 1024 * 1024;

/** What may stand in a header and, percent-encoded, in a query; every JWT is of this. */
const TOKEN = /^[\x21-\x7e]+$/;

/**
 * @typedef {object} ClientOptions
 * @property {boolean} [listen] Listen as part of connecting. Default: false.
 * @property {boolean | string | { key: string }} [recover] Listen in such a way that what is kept and was missed comes, each
 *   message once, or is told to `onGap` (SPEC section 8.10). true: from the first connection on. A string: since this
 *   position, which a program has saved. `key`: since the position that is saved in `localStorage` under this key, where
 *   it is saved from then on. Endpoints that keep no messages refuse it: `bad_state`. Default: false.
 * @property {number} [timeoutMs] Bounds every command, the wait for a connection included. Default: 10,000.
 * @property {number} [queueMax] Notifications that wait for the iterator or an async handler. Default: 10,000.
 * @property {"drop_oldest" | "pause"} [overflow] What happens when they are more. `drop_oldest`, the default: the oldest
 *   goes, counted in `dropped` and told to `onDropped`. `pause`, in Node only: reading stops, so that commands wait
 *   too, and the endpoint deals with a slow reader (SPEC section 1.4).
 * @property {number} [backoffBaseMs] Default: 100.
 * @property {number} [backoffMaxMs] Default: 10,000.
 * @property {number} [maxFrameBytes] The endpoints' limit of a message. Default: 16 MiB.
 * @property {string | (() => string | Promise<string>)} [token] For an endpoint that wants one, or what gives one for
 *   each connection, since an endpoint closes a connection whose token has expired.
 * @property {string | Uint8Array | readonly (string | Uint8Array)[]} [ca] Node only: certificates of the authorities to
 *   trust instead of Node's own, PEM.
 * @property {"disconnect" | null} [until] What `subscribe` does where it does not say so. Default: `"disconnect"` in a page,
 *   else null: it stays.
 * @property {boolean} [lines] What is to be sent at the same moment shares a message, each way (SPEC section 1.6):
 *   cheaper where there is much. Default: false.
 * @property {() => number} [random] In [0, 1), for the waits before connecting again. Default: `Math.random`.
 * @property {(key: string | null, broadcast: any, notification: Notification) => void | Promise<void>} [onNotification]
 *   Takes the place of the iterator. One that returns a promise is not called again before that is fulfilled.
 * @property {(gap: Gap) => void | Promise<void>} [onGap] Of these topics kept messages may be lacking since the position:
 *   look at their state in another way. Told where the messages would have come, or before. After one that returns a
 *   promise the next notification waits for it. Without a handler the console is told.
 * @property {(error: ProtocolError) => void} [onError] A publish without `ack` has failed.
 * @property {(url: string) => void} [onConnected] There is a connection, the first or another.
 * @property {(error: ConnectionLost) => void} [onLost] A connection was lost.
 * @property {(error: Unreachable) => void} [onUnreachable] An attempt to connect again has failed.
 * @property {(notification: Notification, dropped: number) => void} [onDropped] The queue was full. `dropped`: how many
 *   in all.
 * @property {(subscriptions: Subscription[], count: number) => void} [onEnded] Subscriptions have ended by themselves, and
 *   are not subscribed to again by this client: the latest 1,000 at most, with `topic` and `filter`, and how many there are.
 */

/**
 * @typedef {object} WaitOptions
 * @property {number} [timeoutMs] In place of the client's.
 * @property {AbortSignal} [signal] Stops waiting, with the signal's reason; what was sent already may take effect.
 */

/**
 * @typedef {object} TermOptions
 * @property {"disconnect" | null} [until] `"disconnect"`: the subscription ends when the client has listened nowhere for the
 *   endpoints' grace time (60 s by default). null: it stays. Default: the client's, which is `"disconnect"` in a page.
 * @property {number} [ttlS] It ends after so many seconds, 30 days at most; with both whichever comes first.
 */

/**
 * @typedef {object} FilterOptions
 * @property {Record<string, any>} [filter] Only messages whose payload matches: SPEC section 2.6.
 */

/**
 * @typedef {object} ReplaceOptions
 * @property {boolean} [replace] It takes the place of everything that the client has at these topics. Default:
 *   false.
 */

/**
 * @typedef {object} KeptOptions
 * @property {number} [last] So many of the latest kept messages of each topic come first, 1,000 at most.
 * @property {string} [since] Those since this position come first. It excludes `last`.
 */

/** @typedef {TermOptions & FilterOptions & ReplaceOptions & KeptOptions & WaitOptions} SubscribeOptions */

/** @typedef {FilterOptions & WaitOptions} UnsubscribeOptions */

/**
 * @typedef {object} BroadcastOptions
 * @property {boolean} [ack] Wait until it is in the outboxes of all recipients' endpoints. Default: false.
 * @property {boolean | string} [dedup] What it may be a duplicate of, SPEC section 7. Default: true, the same payload,
 *   whoever published it within the time-to-live. `"retry"`: nothing but its own first try; for what changes back and
 *   forth ("paid", "on hold", "paid"). false: nothing. Any other string: what this client published with the same key;
 *   with another payload that is the error `conflict`.
 */

/**
 * @typedef {BroadcastOptions & { timestamp?: number, keepS?: number }} PublishOptions `timestamp`: ms since the epoch.
 *   `keepS`: it is kept so many seconds for those who miss it, a day at most.
 */

/**
 * @typedef {object} HistoryOptions
 * @property {number} [last] So many of the latest, 1,000 at most. Default: `limit`.
 * @property {string} [since] Those after the message with this `mid`. It excludes `last`.
 * @property {number} [limit] Of the reply. Default: 100, at most 1,000.
 * @property {Record<string, any>} [filter] Only those whose payload matches: SPEC section 2.6.
 */

/**
 * All of them, with the defaults in place of what is not given.
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
 * A URL that is refused is not said: what is in the wrong place may be a password.
 * @param {string} text
 */
export function checkUrl(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    throw new TypeError("that is no URL, such as wss://broker.example");
  }
  if (url.protocol !== "ws:" && url.protocol !== "wss:") throw new TypeError("that is no ws: or wss: URL");
  if (url.hash !== "") throw new TypeError("a WebSocket URL has no fragment");
  if (url.username !== "" || url.password !== "") throw new TypeError("not into the URL: names go into `token`");
  if (url.searchParams.has("access_token")) throw new TypeError("not into the URL: a token goes into `token`");
}

/**
 * The URL as errors say it: without its query, which may have a token under any name.
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
    throw new TypeError("a token has to be a string of visible ASCII characters"); // and is not said
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
