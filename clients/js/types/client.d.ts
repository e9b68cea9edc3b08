/**
 * The client: one `client_id`, connected to any live endpoint of a list. SPEC section 9.
 *
 * Owns: the connection and its renewal, the matching of replies to commands, and which commands it repeats. Must never:
 * know an endpoint's inside or a connection's make, or repeat a command if the repetition could do harm.
 *
 * Commands are pipelined and matched by `id`. A publish without an acknowledgement waits only while the connection
 * takes no more.
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
 * One client. Make it, `connect()`, and `close()` it at the end; or `await Client.open(…)`.
 *
 * When it loses its connection, it waits `random() * min(backoffMaxMs, backoffBaseMs * 2 ** failures)` ms (full
 * jitter), connects to the next URL, for as long as it takes, and listens again; the broker keeps its subscriptions. It
 * misses notifications sent in between, except retained messages if it listens with `recover`. A client that has
 * listened elsewhere since (code 4001), or whose token was revoked (4006), ends instead.
 *
 * A handler has to be quick, and an error that it throws ends the client: `closed` yields it, and `close` throws it.
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
     * A connected client. Throws as `connect` does.
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
    /** The URL of its connection; null: it has none. */
    get url(): string | null;
    /** Whether it listens, or will when it has a connection again. */
    get listening(): boolean;
    get reconnects(): number;
    /** Notifications dropped because the queue was full. */
    get dropped(): number;
    /** Notifications that wait. */
    get queued(): number;
    /**
     * With `recover`: the program has processed all retained messages up to this position. Save it, and give it to
     * `recover` the next time. null: none is known yet.
     */
    get position(): string | null;
    /** With `recover`: messages that came a second time, and were dropped. */
    get repeats(): number;
    /**
     * The rules in force, with every field, as the endpoint stated them when the client last listened or set its bounds.
     * Empty: there are none.
     */
    get bounds(): Rule[];
    /** Replies to commands that nobody waited for any longer. */
    get lateReplies(): number;
    /** The latest errors of unacknowledged publishes, 1,000 at most. */
    get errors(): ProtocolError[];
    /** Counts of all these errors, by code. */
    get errorCounts(): Map<string, number>;
    /** Fulfilled when the client has ended: with null after `close`, else with the error. Never rejects. */
    get closed(): Promise<Error | null>;
    /**
     * Try each URL once. `ConnectFailed`: none works, and you can call it again; `ProtocolError`: the endpoint refuses to
     * let it listen.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {Promise<void>}
     */
    connect({ signal }?: {
        signal?: AbortSignal;
    }): Promise<void>;
    /**
     * Close the connection and end the iteration. Commands under way reject with `ClosedForGood`. Throws the error of a
     * handler that failed. You can call it again.
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
     * Stop receiving them.
     * @param {WaitOptions} [options]
     * @returns {Promise<void>}
     */
    unlisten(options?: WaitOptions): Promise<void>;
    /**
     * Replace this client's bounds: a preset, or a list of rules (SPEC section 2.8). `[]`: none. The endpoint first
     * delivers what it holds by the former ones. The client has to listen (`bad_state`), and listens with these from then
     * on, also after reconnecting.
     * @param {Bounds} bounds
     * @param {WaitOptions} [options]
     * @returns {Promise<void>}
     */
    setBounds(bounds: Bounds, options?: WaitOptions): Promise<void>;
    /**
     * Subscribe to one topic, or to any number.
     *
     * With a `filter` the client gets the messages that match it (SPEC section 2.6). Each further filter is a separate
     * subscription: a message that matches any filter comes once, and a subscription without a filter gets all. `replace:
     * true` removes everything else that the client has at these topics. `bad_filter`: the endpoint says where, and why.
     *
     * The subscription stays until you unsubscribe. With `until: "disconnect"`, the default in a page, it ends when the
     * client has listened nowhere for the endpoints' grace time (60 s by default). The client keeps a list of these, and
     * subscribes again to those that ended while it was away. `ttlS`: it ends after that many seconds. A subscription that
     * already stays does not get an end, except by `replace`.
     *
     * `last: n`: the n latest retained messages of each topic come before it resolves, as notifications with `kept`.
     * `since`: those since that position. The client has to listen for that (`bad_state`).
     *
     * A large list goes out as several commands; more are under way at once as long as they are quick. Each has
     * `timeoutMs`; by default the client's, plus two seconds for every 1,000 characters of topics. After an error some
     * topics may be subscribed to; repeating is safe, and continues where the first try ended. The client checks all
     * topics (`bad_topic`) before it sends anything.
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
     * With `ack`: resolves to whether it was a duplicate, once it is in the outboxes of all subscribers' endpoints.
     * Without: resolves to undefined once written; `onError` and `errors` get a failure. After a lost connection or a
     * passing error the client publishes again, since the repetition is a duplicate at worst (so `true` can then mean
     * this publish's own first try; with `dedup: "retry"` it resolves to false); with `dedup: false` it never does.
     *
     * `keepS`: endpoints retain it for this many seconds. `bad_state`: no endpoint retains messages.
     *
     * `item`: the part of the topic's state that it is about; `weight`: how much a client lacks without it. Both matter to
     * clients with bounds (SPEC section 2.8).
     * @param {string} topic
     * @param {unknown} payload
     * @param {PublishOptions & WaitOptions} [options]
     * @returns {Promise<boolean | undefined>}
     */
    publish(topic: string, payload: unknown, options?: PublishOptions & WaitOptions): Promise<boolean | undefined>;
    /**
     * Publish [topic, payload] pairs in one go, without acknowledgements: with `lines` as one message for each MiB.
     * Otherwise as `publish`: with `dedup: "retry"` each has its own key; any other string is the key of all, as `keepS`,
     * `item` and `weight` are. The client checks all before it sends the first.
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
     * Publish to every listening client. Otherwise as `publish`.
     * @param {unknown} payload
     * @param {BroadcastOptions & WaitOptions} [options]
     * @returns {Promise<boolean | undefined>}
     */
    broadcast(payload: unknown, options?: BroadcastOptions & WaitOptions): Promise<boolean | undefined>;
    /**
     * The retained messages of a topic, the oldest first: the latest `limit`, the latest `last`, or those after the
     * message whose `mid` is `since`. To read page by page, repeat with `since: page.mid` while there are `more`.
     * `forbidden`: the token does not permit subscribing to it. `bad_state`: no endpoint retains messages.
     * @param {string} topic
     * @param {HistoryOptions & WaitOptions} [options]
     * @returns {Promise<History>}
     */
    history(topic: string, options?: HistoryOptions & WaitOptions): Promise<History>;
    /**
     * This client's subscriptions, grouped by topic, read in pages of at most `limit` topics.
     * @param {{ limit?: number } & WaitOptions} [options]
     * @returns {AsyncGenerator<Subscription, void, void>}
     */
    subscriptions(options?: {
        limit?: number;
    } & WaitOptions): AsyncGenerator<Subscription, void, void>;
    /**
     * A topic's subscribers, in the order of their ids, and whether each listens somewhere. Read in pages of at most
     * `limit`, which can miss changes made meanwhile. `forbidden`: the token does not permit it (`presence`).
     * @param {string} topic
     * @param {{ limit?: number } & WaitOptions} [options]
     * @returns {AsyncGenerator<Subscriber, void, void>}
     */
    subscribers(topic: string, options?: {
        limit?: number;
    } & WaitOptions): AsyncGenerator<Subscriber, void, void>;
    /**
     * Revoke the token with this `jti`, or all tokens of exactly this `sub` issued up to now. It needs a token with the
     * permission `revoke`. When it resolves, every endpoint knows.
     *
     * `expiresAt`: until when endpoints remember it, in Unix seconds, usually the token's `exp`; by default 30 days from
     * now, and at most 400. Resolves to the time until which they remember it and, for a subject, the second up to which
     * its tokens were issued. `bad_state`: not exactly one of the two, or one of the wrong form.
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
     * The notifications as they come, including those received before the end. Ends after `close`; throws `ClosedForGood`
     * or `ProtocolError` when the endpoint ended it. One iteration at a time.
     * @returns {AsyncGenerator<Notification, void, void>}
     */
    [Symbol.asyncIterator](): AsyncGenerator<Notification, void, void>;
    /**
     * The same until the signal is aborted: then it throws the signal's reason.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {AsyncGenerator<Notification, void, void>}
     */
    notifications({ signal }?: {
        signal?: AbortSignal;
    }): AsyncGenerator<Notification, void, void>;
}
