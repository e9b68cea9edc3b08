/**
 * The client: one `client_id`, connected to whichever endpoint of a list is alive. SPEC section 9.
 *
 * Owns: the connection and its renewal, the matching of replies to commands, and which command is repeated by itself.
 * Must never: know what an endpoint does inside or what a connection is made of, or repeat a command whose repetition
 * could do harm.
 *
 * Commands are pipelined and matched by `id`. A publish that asks for no acknowledgement waits for nothing unless the
 * connection takes no more.
 */
import { ProtocolError } from "./errors.js";
import type { BroadcastOptions, ClientOptions, HistoryOptions, PublishOptions } from "./options.js";
import type { SubscribeOptions, UnsubscribeOptions, WaitOptions } from "./options.js";
import type { History } from "./history.js";
import type { Subscriber, Subscription } from "./listings.js";
import type { Notification } from "./queue.js";
/** @import { BroadcastOptions, ClientOptions, HistoryOptions, PublishOptions } from "./options.js" */
/** @import { SubscribeOptions, UnsubscribeOptions, WaitOptions } from "./options.js" */
/** @import { History } from "./history.js" */
/** @import { Ask, Subscriber, Subscription } from "./listings.js" */
/** @import { Again } from "./kept.js" */
/** @import { Notification } from "./queue.js" */
/** @import { Connect, Socket } from "./transport.js" */
/**
 * One client. Make it, `connect()`, and `close()` it at the end; or `await Client.open(…)`.
 *
 * A lost connection is renewed after `random() * min(backoffMaxMs, backoffBaseMs * 2 ** failures)` ms (full jitter), at
 * the next URL, for as long as it takes, and listens again by itself; subscriptions are the broker's to keep.
 * Notifications sent in between are missed, but for what is kept, where it listens with `recover`. A client that listened
 * elsewhere since (code 4001), or whose token has been revoked (4006), ends instead.
 *
 * A handler has to be quick, and what it throws ends the client: `closed` tells it, and `close` throws it.
 */
export declare class Client {
    #private;
    /**
     * @param {string | readonly string[]} urls One `ws:` or `wss:` URL or several, tried in order and round again.
     * @param {string | number} clientId A string of 1 to 128 bytes, or a safe integer.
     * @param {ClientOptions} [options]
     */
    constructor(urls: string | readonly string[], clientId: string | number, options?: ClientOptions);
    /**
     * A client that is connected. Throws as `connect` does.
     * @template {typeof Client} T
     * @this {T}
     * @param {string | readonly string[]} urls
     * @param {string | number} clientId
     * @param {ClientOptions & { signal?: AbortSignal }} [options]
     * @returns {Promise<InstanceType<T>>}
     */
    static open<T extends typeof Client>(this: T, urls: string | readonly string[], clientId: string | number, options?: ClientOptions & {
        signal?: AbortSignal;
    }): Promise<InstanceType<T>>;
    get clientId(): string | number;
    /** Where it is connected; null: nowhere. */
    get url(): string | null;
    /** Whether it listens, or will again when it is connected. */
    get listening(): boolean;
    get reconnects(): number;
    /** Notifications dropped because the queue was full. */
    get dropped(): number;
    /** Notifications that wait. */
    get queued(): number;
    /**
     * With `recover`: all that was kept up to here has been processed. It is what a program saves, and gives to `recover`
     * the next time. null: none is known yet.
     */
    get position(): string | null;
    /** With `recover`: messages that came once more, and were dropped. */
    get repeats(): number;
    /** Replies to commands that nobody waited for any more. */
    get lateReplies(): number;
    /** The latest errors of unacknowledged publishes, 1,000 at most. */
    get errors(): ProtocolError[];
    /** All of them, by code. */
    get errorCounts(): Map<string, number>;
    /** Fulfilled when the client has ended: with null after `close`, else with what ended it. Never rejected. */
    get closed(): Promise<Error | null>;
    /**
     * Try each URL once. `ConnectFailed`: none works, and it may be called again; `ProtocolError`: listening is refused
     * for good.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {Promise<void>}
     */
    connect({ signal }?: {
        signal?: AbortSignal;
    }): Promise<void>;
    /**
     * Close the connection and end the iteration. Commands under way reject with `ClosedForGood`. Throws what a handler
     * has thrown. May be called again.
     * @returns {Promise<void>}
     */
    close(): Promise<void>;
    /**
     * Receive this client's messages here, after reconnecting too. SPEC section 2. What has ended meanwhile is told to
     * `onEnded`.
     * @param {WaitOptions} [options]
     * @returns {Promise<void>}
     */
    listen(options?: WaitOptions): Promise<void>;
    /**
     * Receive no more of them.
     * @param {WaitOptions} [options]
     * @returns {Promise<void>}
     */
    unlisten(options?: WaitOptions): Promise<void>;
    /**
     * Subscribe to one topic or to any number of them.
     *
     * With a `filter` the client gets the messages that match it (SPEC section 2.6). Each further filter is a subscription
     * of its own: a message that matches any of them comes once, and a subscription without a filter gets all.
     * `replace: true` removes everything else that the client has at these topics. `bad_filter`: the endpoint says where,
     * and why.
     *
     * The subscription stays until you unsubscribe. With `until: "disconnect"`, the default in a page, it ends when the
     * client has listened nowhere for the endpoints' grace time (60 s by default). The client keeps a list of these, and
     * subscribes again to those that ended while it was away. `ttlS`: it ends after that many seconds. A subscription that
     * already stays does not get an end, except by `replace`.
     *
     * `last: n`: the n latest kept messages of each topic come before it is done, as notifications with `kept`. `since`:
     * those since that position. A client has to listen for that (`bad_state`).
     *
     * Many are sent as several commands, of which more are under way at once as long as they are quick. Each has
     * `timeoutMs`; where that is not given, the client's and two seconds for every 1,000 characters of topics. After an error
     * some topics may be subscribed to; repeating is safe, and goes on where the first try has ended. `bad_topic`: checked
     * before anything is sent.
     * @param {string | readonly string[]} topics
     * @param {SubscribeOptions} [options]
     * @returns {Promise<void>}
     */
    subscribe(topics: string | readonly string[], options?: SubscribeOptions): Promise<void>;
    /**
     * Undo `subscribe`, in the same way: everything that the client has at these topics, or only the subscription with this
     * `filter`.
     * @param {string | readonly string[]} topics
     * @param {UnsubscribeOptions} [options]
     * @returns {Promise<void>}
     */
    unsubscribe(topics: string | readonly string[], options?: UnsubscribeOptions): Promise<void>;
    /**
     * Publish a JSON value.
     *
     * With `ack`: gives whether it was a duplicate, once it is in the outboxes of all subscribers' endpoints. Without:
     * gives undefined once written, and a failure is told to `onError` and kept in `errors`. It is repeated by itself
     * after a lost connection or a passing error, since the repetition is a duplicate at worst (so `true` may then mean
     * this publish's own first try; with `dedup: "retry"` it gives false); with `dedup: false` never.
     *
     * `keepS`: it is kept so many seconds. `bad_state`: no endpoint keeps messages.
     * @param {string} topic
     * @param {unknown} payload
     * @param {PublishOptions & WaitOptions} [options]
     * @returns {Promise<boolean | undefined>}
     */
    publish(topic: string, payload: unknown, options?: PublishOptions & WaitOptions): Promise<boolean | undefined>;
    /**
     * Publish [topic, payload] pairs in one go, without acknowledgements: with `lines` as one message for each MiB.
     * Otherwise as `publish`: with `dedup: "retry"` each has a key of its own, any other string is the key of all. All are
     * checked before the first is sent.
     * @param {Iterable<readonly [string, unknown]>} messages
     * @param {{ dedup?: boolean | string, keepS?: number } & WaitOptions} [options]
     * @returns {Promise<void>}
     */
    publishMany(messages: Iterable<readonly [string, unknown]>, options?: {
        dedup?: boolean | string;
        keepS?: number;
    } & WaitOptions): Promise<void>;
    /**
     * Publish to every listening client there is. Otherwise as `publish`.
     * @param {unknown} payload
     * @param {BroadcastOptions & WaitOptions} [options]
     * @returns {Promise<boolean | undefined>}
     */
    broadcast(payload: unknown, options?: BroadcastOptions & WaitOptions): Promise<boolean | undefined>;
    /**
     * The kept messages of a topic, the oldest first: the latest `limit`, the `last` so many, or those after the message
     * whose `mid` is `since`. So pages are read with `since: page.mid` as long as there are `more`. `forbidden`: the token
     * does not permit to subscribe to it. `bad_state`: no endpoint keeps messages.
     * @param {string} topic
     * @param {HistoryOptions & WaitOptions} [options]
     * @returns {Promise<History>}
     */
    history(topic: string, options?: HistoryOptions & WaitOptions): Promise<History>;
    /**
     * This client's subscriptions, those to one topic one after the other, read in pages of at most `limit` topics.
     * @param {{ limit?: number } & WaitOptions} [options]
     * @returns {AsyncGenerator<Subscription, void, void>}
     */
    subscriptions(options?: {
        limit?: number;
    } & WaitOptions): AsyncGenerator<Subscription, void, void>;
    /**
     * A topic's subscribers, in the order of their ids, and whether each listens somewhere. Read in pages of at most
     * `limit`: what changes meanwhile may be missed. `forbidden`: the token does not permit it (`presence`).
     * @param {string} topic
     * @param {{ limit?: number } & WaitOptions} [options]
     * @returns {AsyncGenerator<Subscriber, void, void>}
     */
    subscribers(topic: string, options?: {
        limit?: number;
    } & WaitOptions): AsyncGenerator<Subscriber, void, void>;
    /**
     * Take back the token with this `jti`, or all tokens of exactly this `sub` that have been issued up to now. It wants a
     * token with the permission `revoke`, and is known to every endpoint when it is done.
     *
     * `expiresAt`: until when it is to be remembered, in Unix seconds, which is the token's `exp`; by default 30 days from
     * now, and 400 at the most. Gives until when it is remembered and, of a subject, the second up to which its tokens had
     * been issued. `bad_state`: not one of the two, or not of the right form.
     * @param {{ jti?: string, sub?: string, expiresAt?: number }} what
     * @param {WaitOptions} [options]
     * @returns {Promise<{ expiresAt: number, issuedUntil: number | null }>}
     */
    revoke({ jti, sub, expiresAt }: {
        jti?: string;
        sub?: string;
        expiresAt?: number;
    }, options?: WaitOptions): Promise<{
        expiresAt: number;
        issuedUntil: number | null;
    }>;
    /**
     * The notifications as they come, those that were received before the end included. Ends after `close`; throws
     * `ClosedForGood` or `ProtocolError` when the endpoint ended it. One iteration at a time.
     * @returns {AsyncGenerator<Notification, void, void>}
     */
    [Symbol.asyncIterator](): AsyncGenerator<Notification, void, void>;
    /**
     * The same, until the signal is aborted: then it throws the signal's reason.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {AsyncGenerator<Notification, void, void>}
     */
    notifications({ signal }?: {
        signal?: AbortSignal;
    }): AsyncGenerator<Notification, void, void>;
}
