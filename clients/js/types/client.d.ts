/**
 * The client: one `client_id`, connected to any live endpoint of a list. SPEC section 9.
 *
 * Owns: the connection and its renewal, the matching of replies to commands, and which commands it repeats. Must never:
 * know the inside of an endpoint or the kind of a connection, or repeat a command if the repetition could do harm.
 *
 * The client sends commands without waiting for earlier replies, and matches replies by `id`. A publish without an
 * acknowledgement waits only while the connection accepts no more data.
 */
import { ProtocolError } from "./errors.js";
import type { Bounds, Rule } from "./bounds.js";
import type { BroadcastOptions, ClientOptions, HistoryOptions, PublishOptions } from "./options.js";
import type { SubscribeOptions, UnsubscribeOptions, WaitOptions } from "./options.js";
import type { History } from "./history.js";
import type { Subscriber, Subscription } from "./listings.js";
import type { Notification } from "./queue.js";
/** @import { Bounds, Rule } from "./bounds.js" */
/** @import { BroadcastOptions, ClientOptions, HistoryOptions, PublishOptions } from "./options.js" */
/** @import { SubscribeOptions, UnsubscribeOptions, WaitOptions } from "./options.js" */
/** @import { History } from "./history.js" */
/** @import { Ask, Subscriber, Subscription } from "./listings.js" */
/** @import { Again } from "./kept.js" */
/** @import { Notification } from "./queue.js" */
/** @import { Connect, Socket } from "./transport.js" */
/**
 * One client. Create it and call `connect()`, or use `await Client.open(…)`. Call `close()` at the end.
 *
 * When the client loses its connection, it waits `random() * min(backoffMaxMs, backoffBaseMs * 2 ** failures)` ms (full
 * jitter), and connects to the next URL. It repeats this until a connection succeeds, and then listens again. The
 * broker keeps the client's subscriptions. The client misses notifications sent in between, except retained messages if
 * it listens with `recover`. Instead of reconnecting, a client ends if it now listens elsewhere (code 4001), or if its
 * token was revoked (4006).
 *
 * Handlers must be quick. An error that a handler throws ends the client: `closed` yields the error, and `close` throws
 * it.
 */
export declare class Client {
    #private;
    /**
     * @param {string | readonly string[]} urls One or more `ws:` or `wss:` URLs, tried in order and then from the start
     *   again.
     * @param {string | number} clientId A string of 1 to 128 bytes, or a safe integer.
     * @param {ClientOptions} [options]
     */
    constructor(urls: string | readonly string[], clientId: string | number, options?: ClientOptions);
    /**
     * Return a connected client. Throws the same errors as `connect`.
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
    /** The URL of the connection, or null without a connection. */
    get url(): string | null;
    /** Whether the client listens, or will listen when it has a connection again. */
    get listening(): boolean;
    get reconnects(): number;
    /** Number of notifications dropped because the queue was full. */
    get dropped(): number;
    /** Number of waiting notifications. */
    get queued(): number;
    /**
     * With `recover`: the program has processed all retained messages up to this position. Save it, and give it to
     * `recover` the next time. null: no position is known yet.
     */
    get position(): string | null;
    /** With `recover`: number of messages that arrived a second time, and were dropped. */
    get repeats(): number;
    /**
     * The rules in force, with every field, as the endpoint stated them when the client last listened or set its bounds.
     * The list is empty if there are no rules.
     */
    get bounds(): Rule[];
    /** Number of replies that arrived after their commands had stopped waiting. */
    get lateReplies(): number;
    /** The latest errors of unacknowledged publishes, 1,000 at most. */
    get errors(): ProtocolError[];
    /** The number of all these errors, by code. */
    get errorCounts(): Map<string, number>;
    /** Fulfilled when the client has ended: with null after `close`, and otherwise with the error. Never rejects. */
    get closed(): Promise<Error | null>;
    /**
     * Try each URL once. Throws `ConnectFailed` if no URL works; you can then call `connect` again. Throws
     * `ProtocolError` if the endpoint refuses to let the client listen.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {Promise<void>}
     */
    connect({ signal }?: {
        signal?: AbortSignal;
    }): Promise<void>;
    /**
     * Close the connection and end the iteration. Unfinished commands reject with `ClosedForGood`. Throws the error of a
     * handler that failed. You can call `close` several times.
     * @returns {Promise<void>}
     */
    close(): Promise<void>;
    /**
     * Receive this client's messages here, also after reconnecting. SPEC section 2. `onEnded` gets the subscriptions that
     * have ended meanwhile.
     * @param {WaitOptions} [options]
     * @returns {Promise<void>}
     */
    listen(options?: WaitOptions): Promise<void>;
    /**
     * Stop receiving this client's messages.
     * @param {WaitOptions} [options]
     * @returns {Promise<void>}
     */
    unlisten(options?: WaitOptions): Promise<void>;
    /**
     * Replace this client's bounds with a preset, or with a list of rules (SPEC section 2.8). `[]` removes all bounds.
     * The endpoint first delivers the messages that it holds under the previous bounds. If the client does not listen,
     * the endpoint refuses with `bad_state`. The client keeps the new bounds after reconnecting.
     * @param {Bounds} bounds
     * @param {WaitOptions} [options]
     * @returns {Promise<void>}
     */
    setBounds(bounds: Bounds, options?: WaitOptions): Promise<void>;
    /**
     * Subscribe to one topic, or to any number.
     *
     * With a `filter`, the client gets the messages that match the filter (SPEC section 2.6). Each further filter is a
     * separate subscription. A message that matches several filters arrives once. A subscription without a filter gets
     * all messages. `replace: true` removes the client's other subscriptions to these topics. `bad_filter`: the filter is
     * wrong, and the endpoint says where and why.
     *
     * The subscription stays until you unsubscribe. With `until: "disconnect"`, the default in a page, it ends when the
     * client has listened nowhere for the endpoints' grace time (60 s by default). The client keeps a list of such
     * subscriptions, and renews those that ended while it was away. With `ttlS`, the subscription ends after that many
     * seconds. A permanent subscription gets an end only with `replace`.
     *
     * With `last: n`, the n latest retained messages of each topic arrive before the promise resolves, as notifications
     * with `kept`. With `since`, all retained messages since that position arrive. If the client does not listen, the
     * endpoint refuses both options with `bad_state`.
     *
     * The client sends a large list as several commands. While replies are quick, it sends more commands at the same
     * time. `timeoutMs` applies to each command. Its default is the client's, plus two seconds for every 1,000 characters
     * of topics. After an error, the client may be subscribed to some topics. Repeating is safe, and continues where the
     * first try ended. The client checks all topics (`bad_topic`) before it sends anything.
     * @param {string | readonly string[]} topics
     * @param {SubscribeOptions} [options]
     * @returns {Promise<void>}
     */
    subscribe(topics: string | readonly string[], options?: SubscribeOptions): Promise<void>;
    /**
     * Undo `subscribe`, in the same way. Remove all subscriptions to these topics, or only the subscriptions with this
     * `filter`.
     * @param {string | readonly string[]} topics
     * @param {UnsubscribeOptions} [options]
     * @returns {Promise<void>}
     */
    unsubscribe(topics: string | readonly string[], options?: UnsubscribeOptions): Promise<void>;
    /**
     * Publish a JSON value.
     *
     * With `ack`, the promise resolves when the message is in the outboxes of all subscribers' endpoints. The result says
     * whether the message was a duplicate. Without `ack`, the promise resolves to undefined when the message is written,
     * and `onError` and `errors` get a failure.
     *
     * After a lost connection or a temporary error, the client sends a publish with `ack` again, unless `dedup` is false.
     * At worst, the repetition is a duplicate. So `true` can mean that the first try of this publish succeeded. With
     * `dedup: "retry"`, the promise then resolves to false.
     *
     * `keepS`: endpoints retain the message for this many seconds. `bad_state`: endpoints retain no messages.
     *
     * `item`: the part of the topic's state that the message is about. `weight`: how much a client lacks without the
     * message. Both matter to clients with bounds (SPEC section 2.8).
     * @param {string} topic
     * @param {unknown} payload
     * @param {PublishOptions & WaitOptions} [options]
     * @returns {Promise<boolean | undefined>}
     */
    publish(topic: string, payload: unknown, options?: PublishOptions & WaitOptions): Promise<boolean | undefined>;
    /**
     * Publish [topic, payload] pairs together, without acknowledgements. With `lines`, they share one message per MiB.
     * The options are those of `publish`. With `dedup: "retry"`, each message has its own key. Any other string is the
     * key of all messages. `keepS`, `item` and `weight` also apply to all messages. The client checks all messages before
     * it sends the first.
     * @param {Iterable<readonly [string, unknown]>} messages
     * @param {{ dedup?: boolean | string, keepS?: number, item?: string, weight?: number } & WaitOptions} [options]
     * @returns {Promise<void>}
     */
    publishMany(messages: Iterable<readonly [string, unknown]>, options?: {
        dedup?: boolean | string;
        keepS?: number;
        item?: string;
        weight?: number;
    } & WaitOptions): Promise<void>;
    /**
     * Publish to every listening client. The options are those of `publish`.
     * @param {unknown} payload
     * @param {BroadcastOptions & WaitOptions} [options]
     * @returns {Promise<boolean | undefined>}
     */
    broadcast(payload: unknown, options?: BroadcastOptions & WaitOptions): Promise<boolean | undefined>;
    /**
     * Return the retained messages of a topic, the oldest first: the latest `limit`, the latest `last`, or those after
     * the message whose `mid` is `since`. To read page by page, repeat the call with `since: page.mid` while `page.more`
     * is true. `forbidden`: the token does not permit subscribing to the topic. `bad_state`: endpoints retain no
     * messages.
     * @param {string} topic
     * @param {HistoryOptions & WaitOptions} [options]
     * @returns {Promise<History>}
     */
    history(topic: string, options?: HistoryOptions & WaitOptions): Promise<History>;
    /**
     * Iterate over this client's subscriptions, grouped by topic. The client reads them in pages of at most `limit`
     * topics.
     * @param {{ limit?: number } & WaitOptions} [options]
     * @returns {AsyncGenerator<Subscription, void, void>}
     */
    subscriptions(options?: {
        limit?: number;
    } & WaitOptions): AsyncGenerator<Subscription, void, void>;
    /**
     * Iterate over a topic's subscribers, in the order of their ids. Each result says whether the subscriber listens
     * somewhere. The client reads pages of at most `limit` subscribers, and can miss changes made meanwhile. `forbidden`:
     * the token does not permit this (`presence`).
     * @param {string} topic
     * @param {{ limit?: number } & WaitOptions} [options]
     * @returns {AsyncGenerator<Subscriber, void, void>}
     */
    subscribers(topic: string, options?: {
        limit?: number;
    } & WaitOptions): AsyncGenerator<Subscriber, void, void>;
    /**
     * Revoke the token with this `jti`, or all tokens of exactly this `sub` issued up to now. This client's own token
     * needs the permission `revoke`. When the promise resolves, every endpoint knows of the revocation.
     *
     * `expiresAt`: until when endpoints remember the revocation, in Unix seconds, usually the token's `exp`. The default
     * is 30 days from now, and the maximum is 400 days. The promise resolves to this time and, for a `sub`, to the second
     * up to which the revoked tokens were issued. `bad_state`: you did not give exactly one of `jti` and `sub`, or its
     * form is wrong.
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
     * Iterate over the notifications in the order of arrival, including those received before the client ended. The
     * iteration ends after `close`. It throws `ClosedForGood` or `ProtocolError` if the endpoint ended the client. Only
     * one iteration can run at a time.
     * @returns {AsyncGenerator<Notification, void, void>}
     */
    [Symbol.asyncIterator](): AsyncGenerator<Notification, void, void>;
    /**
     * Iterate over the notifications until the signal is aborted. The iteration then throws the signal's reason.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {AsyncGenerator<Notification, void, void>}
     */
    notifications({ signal }?: {
        signal?: AbortSignal;
    }): AsyncGenerator<Notification, void, void>;
}
