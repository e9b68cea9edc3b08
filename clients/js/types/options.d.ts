/**
 * What a client may be told when it is made: the options, their defaults, and what makes no sense.
 *
 * Owns: which values are right. Must never: use one.
 */
import type { Gap } from "./recovery.js";
import type { ConnectionLost, ProtocolError, Unreachable } from "./errors.js";
import type { Notification } from "./queue.js";
import type { Subscription } from "./listings.js";
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
     * Listen in such a way that what is kept and was missed comes, each
     * message once, or is told to `onGap` (SPEC section 8.10). true: from the first connection on. A string: since this
     * position, which a program has saved. `key`: since the position that is saved in `localStorage` under this key, where
     * it is saved from then on. Endpoints that keep no messages refuse it: `bad_state`. Default: false.
     */
    recover?: boolean | string | {
        key: string;
    };
    /**
     * Bounds every command, the wait for a connection included. Default: 10,000.
     */
    timeoutMs?: number;
    /**
     * Notifications that wait for the iterator or an async handler. Default: 10,000.
     */
    queueMax?: number;
    /**
     * What happens when they are more. `drop_oldest`, the default: the oldest
     * goes, counted in `dropped` and told to `onDropped`. `pause`, in Node only: reading stops, so that commands wait
     * too, and the endpoint deals with a slow reader (SPEC section 1.4).
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
     * The endpoints' limit of a message. Default: 16 MiB.
     */
    maxFrameBytes?: number;
    /**
     * For an endpoint that wants one, or what gives one for
     * each connection, since an endpoint closes a connection whose token has expired.
     */
    token?: string | (() => string | Promise<string>);
    /**
     * Node only: certificates of the authorities to
     * trust instead of Node's own, PEM.
     */
    ca?: string | Uint8Array | readonly (string | Uint8Array)[];
    /**
     * What `subscribe` does where it does not say so. Default: `"disconnect"` in a page,
     * else null: it stays.
     */
    until?: "disconnect" | null;
    /**
     * What is to be sent at the same moment shares a message, each way (SPEC section 1.6):
     * cheaper where there is much. Default: false.
     */
    lines?: boolean;
    /**
     * In [0, 1), for the waits before connecting again. Default: `Math.random`.
     */
    random?: () => number;
    /**
     * Takes the place of the iterator. One that returns a promise is not called again before that is fulfilled.
     */
    onNotification?: (key: string | null, broadcast: any, notification: Notification) => void | Promise<void>;
    /**
     * Of these topics kept messages may be lacking since the position:
     * look at their state in another way. Told where the messages would have come, or before. After one that returns a
     * promise the next notification waits for it. Without a handler the console is told.
     */
    onGap?: (gap: Gap) => void | Promise<void>;
    /**
     * A publish without `ack` has failed.
     */
    onError?: (error: ProtocolError) => void;
    /**
     * There is a connection, the first or another.
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
     * in all.
     */
    onDropped?: (notification: Notification, dropped: number) => void;
    /**
     * Subscriptions have ended by themselves, and
     * are not subscribed to again by this client: the latest 1,000 at most, with `topic` and `filter`, and how many there are.
     */
    onEnded?: (subscriptions: Subscription[], count: number) => void;
};
export type WaitOptions = {
    /**
     * In place of the client's.
     */
    timeoutMs?: number;
    /**
     * Stops waiting, with the signal's reason; what was sent already may take effect.
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
     * It ends after so many seconds, 30 days at most; with both whichever comes first.
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
     * It takes the place of everything that the client has at these topics. Default:
     * false.
     */
    replace?: boolean;
};
export type KeptOptions = {
    /**
     * So many of the latest kept messages of each topic come first, 1,000 at most.
     */
    last?: number;
    /**
     * Those since this position come first. It excludes `last`.
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
     * What it may be a duplicate of, SPEC section 7. Default: true, the same payload,
     * whoever published it within the time-to-live. `"retry"`: nothing but its own first try; for what changes back and
     * forth ("paid", "on hold", "paid"). false: nothing. Any other string: what this client published with the same key;
     * with another payload that is the error `conflict`.
     */
    dedup?: boolean | string;
};
export type PublishOptions = BroadcastOptions & {
    timestamp?: number;
    keepS?: number;
};
export type HistoryOptions = {
    /**
     * So many of the latest, 1,000 at most. Default: `limit`.
     */
    last?: number;
    /**
     * Those after the message with this `mid`. It excludes `last`.
     */
    since?: string;
    /**
     * Of the reply. Default: 100, at most 1,000.
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
 * A URL that is refused is not said: what is in the wrong place may be a password.
 * @param {string} text
 */
export declare function checkUrl(text: string): void;
/**
 * The URL as errors say it: without its query, which may have a token under any name.
 * @param {string} url
 */
export declare function shown(url: string): string;
/**
 * @param {unknown} token
 * @returns {string}
 */
export declare function checkToken(token: unknown): string;
