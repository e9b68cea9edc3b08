/**
 * A client's options: their defaults, and the checks of their values.
 *
 * Owns: which values are valid. Must never: use one.
 */
import type { Bounds } from "./bounds.js";
import type { Gap } from "./recovery.js";
import type { ConnectionLost, ProtocolError, Unreachable } from "./errors.js";
import type { Notification } from "./queue.js";
import type { Subscription } from "./listings.js";
/** @import { Bounds } from "./bounds.js" */
/** @import { Gap } from "./recovery.js" */
/** @import { ConnectionLost, ProtocolError, Unreachable } from "./errors.js" */
/** @import { Notification } from "./queue.js" */
/** @import { Subscription } from "./listings.js" */
/** The endpoints' default, SPEC section 1.4. */
export declare const FRAME_BYTES_MAX: number;
export type ClientOptions = {
    /**
     * Listen as part of connecting. Default: false.
     */
    listen?: boolean;
    /**
     * Listen so that missed retained messages come, each once, or
     * `onGap` reports them (SPEC section 8.10). true: from the first connection on. A string: since this position, which
     * a program has saved. `key`: since the position in `localStorage` under this key, where the client saves it from
     * then on. Endpoints that retain no messages refuse it: `bad_state`. Default: false.
     */
    recover?: boolean | string | {
        key: string;
    };
    /**
     * How stale and how incomplete the client's picture of its topics may become under load: a
     * preset, or a list of rules (SPEC section 2.8). Part of every `listen`. Default: the operator's rules, if there are.
     */
    bounds?: Bounds;
    /**
     * The most notifications, up to 100,000, that may be on their way or wait in this client
     * before the endpoint holds bounded ones back (SPEC section 2.8). Default: no limit.
     */
    window?: number;
    /**
     * Bounds every command, including the wait for a connection. Default: 10,000.
     */
    timeoutMs?: number;
    /**
     * Notifications that wait for the iterator or an async handler. Default: 10,000.
     */
    queueMax?: number;
    /**
     * The action when the queue is full. `drop_oldest`, the default: drop
     * the oldest, count it in `dropped` and pass it to `onDropped`. `pause`, in Node only: stop reading; commands then
     * wait as well, and the endpoint deals with a slow reader (SPEC section 1.4).
     */
    overflow?: "drop_oldest" | "pause";
    /**
     * Default: 100.
     */
    backoffBaseMs?: number;
    /**
     * Default: 10,000.
     */
    backoffMaxMs?: number;
    /**
     * The endpoints' limit for a message. Default: 16 MiB.
     */
    maxFrameBytes?: number;
    /**
     * For an endpoint that needs one: the token, or a
     * function that returns one for each connection, since an endpoint closes a connection whose token has expired.
     */
    token?: string | (() => string | Promise<string>);
    /**
     * Node only: certificates of the authorities to
     * trust instead of Node's own, PEM.
     */
    ca?: string | Uint8Array | readonly (string | Uint8Array)[];
    /**
     * The default of `subscribe`'s `until`. Default: `"disconnect"` in a page, else
     * null: subscriptions stay.
     */
    until?: "disconnect" | null;
    /**
     * Messages that leave at the same moment are joined, each way (SPEC section 1.6): cheaper
     * under load. Default: false.
     */
    lines?: boolean;
    /**
     * In [0, 1), for the waits before connecting again. Default: `Math.random`.
     */
    random?: () => number;
    /**
     * Replaces the iterator. If it returns a promise, the next call waits until that is fulfilled.
     */
    onNotification?: (key: string | null, broadcast: any, notification: Notification) => void | Promise<void>;
    /**
     * Retained messages of these topics may be missing since the
     * position: check their state by other means. The call is made where the messages would have been handed over, or
     * earlier. If it returns a promise, the next notification waits for it. Without a handler the console gets the
     * report.
     */
    onGap?: (gap: Gap) => void | Promise<void>;
    /**
     * A publish without `ack` has failed.
     */
    onError?: (error: ProtocolError) => void;
    /**
     * There is a connection, the first or another one.
     */
    onConnected?: (url: string) => void;
    /**
     * A connection was lost.
     */
    onLost?: (error: ConnectionLost) => void;
    /**
     * An attempt to connect again has failed.
     */
    onUnreachable?: (error: Unreachable) => void;
    /**
     * The queue was full. `dropped`: how many
     * in total.
     */
    onDropped?: (notification: Notification, dropped: number) => void;
    /**
     * Subscriptions have ended, and this
     * client does not renew them: the latest 1,000 at most, with `topic` and `filter`, and their number.
     */
    onEnded?: (subscriptions: Subscription[], count: number) => void;
};
export type WaitOptions = {
    /**
     * Replaces the client's.
     */
    timeoutMs?: number;
    /**
     * Stops waiting, with the signal's reason; a command already sent can still take
     * effect.
     */
    signal?: AbortSignal;
};
export type TermOptions = {
    /**
     * `"disconnect"`: the subscription ends when the client has listened nowhere for the
     * endpoints' grace time (60 s by default). null: it stays. Default: the client's, which is `"disconnect"` in a page.
     */
    until?: "disconnect" | null;
    /**
     * It ends after this many seconds, 30 days at most; with both, at the earlier end.
     */
    ttlS?: number;
};
export type FilterOptions = {
    /**
     * Only messages whose payload matches: SPEC section 2.6.
     */
    filter?: Record<string, any>;
};
export type ReplaceOptions = {
    /**
     * Replaces everything that the client has at these topics. Default: false.
     */
    replace?: boolean;
};
export type KeptOptions = {
    /**
     * The number of latest retained messages of each topic that come first, 1,000 at most.
     */
    last?: number;
    /**
     * Retained messages since this position come first. It excludes `last`.
     */
    since?: string;
};
export type SubscribeOptions = TermOptions & FilterOptions & ReplaceOptions & KeptOptions & WaitOptions;
export type UnsubscribeOptions = FilterOptions & WaitOptions;
export type BroadcastOptions = {
    /**
     * Wait until it is in the outboxes of all recipients' endpoints. Default: false.
     */
    ack?: boolean;
    /**
     * The meaning of a duplicate, SPEC section 7. Default: true, the same payload from
     * any publisher within the time-to-live. `"retry"`: only a retry of this same publish; for values that change back
     * and forth ("paid", "on hold", "paid"). false: nothing. Any other string: an earlier publish of this client with the
     * same key; with another payload that is the error `conflict`.
     */
    dedup?: boolean | string;
};
export type AboutOptions = {
    /**
     * The part of the topic's state that the message is about, 1 to 128 bytes. With `deliver:
     * "latest"` a client gets only the newest held message of each item. Default: a part that all these messages share.
     */
    item?: string;
    /**
     * How much a client lacks that does not have the message yet, from 0 to 1,000,000: the
     * rules' `numerical` bounds the sum. Default: 1.
     */
    weight?: number;
};
export type PublishOptions = BroadcastOptions & AboutOptions & {
    timestamp?: number;
    keepS?: number;
};
export type HistoryOptions = {
    /**
     * This many of the latest, 1,000 at most. Default: `limit`.
     */
    last?: number;
    /**
     * Those after the message with this `mid`. It excludes `last`.
     */
    since?: string;
    /**
     * Maximum number of messages in the reply. Default: 100, at most 1,000.
     */
    limit?: number;
    /**
     * Only those whose payload matches: SPEC section 2.6.
     */
    filter?: Record<string, any>;
};
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
export declare function checkOptions(options: ClientOptions): {
    timeoutMs: number;
    queueMax: number;
    overflow: "drop_oldest" | "pause";
    backoffBaseMs: number;
    backoffMaxMs: number;
    maxFrameBytes: number;
    token: string | (() => string | Promise<string>) | undefined;
    ca: string | readonly (string | Uint8Array<ArrayBufferLike>)[] | Uint8Array<ArrayBufferLike> | undefined;
    lines: boolean;
    until: "disconnect" | null | undefined;
    bounds: Bounds | undefined;
    window: number | undefined;
    recover: string | boolean | {
        key: string;
    };
    random: () => number;
    onNotification: ((key: string | null, broadcast: any, notification: Notification) => void | Promise<void>) | undefined;
    onError: ((error: ProtocolError) => void) | undefined;
    onConnected: ((url: string) => void) | undefined;
    onLost: ((error: ConnectionLost) => void) | undefined;
    onUnreachable: ((error: Unreachable) => void) | undefined;
    onDropped: ((notification: Notification, dropped: number) => void) | undefined;
    onEnded: ((subscriptions: Subscription[], count: number) => void) | undefined;
    onGap: ((gap: Gap) => void | Promise<void>) | undefined;
};
/**
 * Check a URL. The error does not repeat a refused one: a part in the wrong place may be a password.
 * @param {string} text
 */
export declare function checkUrl(text: string): void;
/**
 * The URL for errors: without its query, which can have a token under any name.
 * @param {string} url
 */
export declare function shown(url: string): string;
/**
 * @param {unknown} token
 * @returns {string}
 */
export declare function checkToken(token: unknown): string;
