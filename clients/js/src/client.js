/**
 * The client: one `client_id`, connected to any live endpoint of a list. SPEC section 9.
 *
 * Owns: the connection and its renewal, the matching of replies to commands, and which commands it repeats. Must never:
 * know the inside of an endpoint or the kind of a connection, or repeat a command if the repetition could do harm.
 *
 * The client sends commands without waiting for earlier replies, and matches replies by `id`. A publish without an
 * acknowledgement waits only while the connection accepts no more data.
 */

import { Renewals, SUBSCRIPTIONS_ENDED } from "./again.js";
import { aboutFields, checkBounds } from "./bounds.js";
import { Credit } from "./credit.js";
import {
  CLOSED_FOR_GOOD,
  ClosedForGood,
  CommandTimeout,
  ConnectFailed,
  ConnectionLost,
  ProtocolError,
  Unreachable,
} from "./errors.js";
import { SINCE_TOPICS_MAX, historyFields, historyOf, isPosition, keepFields, keptFields } from "./history.js";
import { Inbox } from "./inbox.js";
import { subscribersOf, subscriptionsOf } from "./listings.js";
import { FRAME_BYTES_MAX, checkOptions, checkToken, checkUrl, shown } from "./options.js";
import { paced } from "./pacing.js";
import { markOf, recoveryOf } from "./recovery.js";
import { Garbage, Replies } from "./replies.js";
import { FreshKeys, body, topicBodies } from "./requests.js";
import {
  checkClientId,
  checkDedup,
  checkRevoke,
  checkTopic,
  filterFields,
  filterText,
  termFields,
} from "./text.js";
import { Bell, deferred, limited, onAbort, raced, sleep } from "./waiting.js";

/**
 * Maximum number of commands that wait for replies. More would only lengthen the waits, because an endpoint answers in
 * order.
 */
const IN_FLIGHT_MAX = 1024;

/**
 * If a connection lasted this many milliseconds, the next backoff starts from the beginning. Received messages do not
 * show that a connection was useful: a publisher without acknowledgements receives none, and an endpoint that closes
 * after each `listen` has sent one.
 */
const LASTED_MS = 10_000;

/** Maximum size of a command of a large subscribe, in bytes. */
const TOPICS_BYTES_MAX = 256 * 1024;

/**
 * Extra time of a subscribe or unsubscribe, in milliseconds per character of its topics. A slow store takes 20 ms per
 * topic, and topics have 10 characters or more.
 */
const MS_PER_CHARACTER = 2;

/** Page size for reading the topics that a gap is compared with. An endpoint returns no larger pages. */
const OWN_TOPICS_PAGE = 10_000;

/**
 * When an endpoint writes a number again, the text can grow (`1e15` becomes `1000000000000000.0`), at worst nearly
 * fourfold. So a notification can be longer than its publish, and a page of `subscriptions` can be longer than any
 * command.
 */
const GROWTH_MAX = 4;

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
export class Client {
  /**
   * Opens connections. A subclass sets this function.
   * @internal
   * @type {Connect}
   */
  static connectSocket = () => {
    throw new TypeError("import Client from `ingeborg-client`, or from src/index.js");
  };

  /**
   * Whether the client and its client id live only as long as a page. A subclass sets this value.
   * @internal
   */
  static get isInPage() {
    return false;
  }

  #urls;
  #clientId;
  #options;
  #until;
  #listening;
  #nextUrl = 0;
  #failures = 0; // attempts in a row without a lasting connection; the backoff grows with this number
  #usedMs = 0; // when the client began to use its connection, as of `performance.now()`
  /** @type {Socket | null} */
  #socket = null; // takes the commands
  /** @type {Socket | null} */
  #fresh = null; // a new connection that does not listen yet
  #state = /** @type {"new" | "connecting" | "running"} */ ("new");
  #changed = new Bell(); // rings when there is a connection
  /** @type {Error | null} */
  #ended = null;
  #ending = new AbortController(); // aborted with the client's error
  /** @type {{ error: unknown } | null} */
  #failure = null; // the error of a handler
  #renewing = Promise.resolve();
  /** @type {Unreachable | ConnectionLost | null} */
  #lastFailure = null;
  #keys = new FreshKeys();
  #replies;
  #inFlight = 0;
  #slotFree = new Bell();
  #recovery;
  #credit;
  #inbox;
  #said; // the bounds of each `listen`
  /** @type {Rule[]} */
  #bounds = [];
  /** @type {ReturnType<typeof deferred<Error | null>>} */
  #closed = deferred();
  #renewals;
  /** @type {Record<string, any> | null} */
  #listened = null; // the reply to the `listen` of a new connection, not processed yet

  /** @type {string | null} */
  #url = null;
  #reconnects = 0;

  /**
   * @param {string | readonly string[]} urls One or more `ws:` or `wss:` URLs, tried in order and then from the start
   *   again.
   * @param {string | number} clientId A string of 1 to 128 bytes, or a safe integer.
   * @param {ClientOptions} [options]
   */
  constructor(urls, clientId, options = {}) {
    this.#urls = typeof urls === "string" ? [urls] : [...urls];
    if (this.#urls.length === 0) throw new TypeError("at least one URL is needed");
    for (const url of this.#urls) checkUrl(url);
    this.#clientId = checkClientId(clientId);
    this.#options = checkOptions(options);
    this.#listening = options.listen ?? false;
    this.#said = this.#options.bounds;
    // A client with a saved position returns with the same id, and then needs its subscriptions.
    const comesBack = options.recover !== undefined && options.recover !== true;
    const isPassing = new.target.isInPage && !comesBack;
    this.#until = options.until === undefined ? (isPassing ? "disconnect" : null) : options.until;
    this.#replies = new Replies((error) => this.#tell(() => this.#options.onError?.(error)));
    this.#recovery = recoveryOf(this.#options.recover);
    const { window } = this.#options;
    this.#credit = window === undefined ? null : new Credit(window, (count) => this.#confirm(count));
    this.#inbox = new Inbox(this.#options, this.#recovery, this.#credit, {
      ended: () => this.#ended,
      isOver: () => this.#failure !== null || (this.#ended instanceof ClosedForGood && this.#ended.closeCode === 1000),
      tell: (call) => this.#tell(call),
      fail: (error) => this.#fail(error),
      goOn: () => this.#socket?.goOn(),
      topics: (signal) => this.#ownTopics(signal),
    });
    this.#renewals = new Renewals({
      signal: this.#ending.signal,
      subscribe: (again) => this.#subscribeOnce(again),
      listen: () => this.#listenOnceMore(),
      delayMs: (attempt) => this.#delayMs(attempt),
      onEnded: (subscriptions, count) => this.#tell(() => this.#options.onEnded?.(subscriptions, count)),
      onRefused: (error) => this.#replies.note(error),
      onBack: () => this.#release(),
    });
  }

  /**
   * Return a connected client. Throws the same errors as `connect`.
   * @template {typeof Client} T
   * @this {T}
   * @param {string | readonly string[]} urls
   * @param {string | number} clientId
   * @param {ClientOptions & { signal?: AbortSignal }} [options]
   * @returns {Promise<InstanceType<T>>}
   */
  static async open(urls, clientId, options = {}) {
    const client = new this(urls, clientId, options);
    await client.connect({ signal: options.signal });
    return /** @type {InstanceType<T>} */ (client);
  }

  // -- state

  get clientId() {
    return this.#clientId;
  }

  /** The URL of the connection, or null without a connection. */
  get url() {
    return this.#url;
  }

  /** Whether the client listens, or will listen when it has a connection again. */
  get listening() {
    return this.#listening;
  }

  get reconnects() {
    return this.#reconnects;
  }

  /** Number of notifications dropped because the queue was full. */
  get dropped() {
    return this.#inbox.dropped;
  }

  /** Number of waiting notifications. */
  get queued() {
    return this.#inbox.length;
  }

  /**
   * With `recover`: the program has processed all retained messages up to this position. Save it, and give it to
   * `recover` the next time. null: no position is known yet.
   */
  get position() {
    return this.#recovery?.position ?? null;
  }

  /** With `recover`: number of messages that arrived a second time, and were dropped. */
  get repeats() {
    return this.#recovery?.repeats ?? 0;
  }

  /**
   * The rules in force, with every field, as the endpoint stated them when the client last listened or set its bounds.
   * The list is empty if there are no rules.
   */
  get bounds() {
    return this.#bounds;
  }

  /** Number of replies that arrived after their commands had stopped waiting. */
  get lateReplies() {
    return this.#replies.late;
  }

  /** The latest errors of unacknowledged publishes, 1,000 at most. */
  get errors() {
    return this.#replies.errors;
  }

  /** The number of all these errors, by code. */
  get errorCounts() {
    return this.#replies.errorCounts;
  }

  /** Fulfilled when the client has ended: with null after `close`, and otherwise with the error. Never rejects. */
  get closed() {
    return this.#closed.promise;
  }

  // -- life

  /**
   * Try each URL once. Throws `ConnectFailed` if no URL works; you can then call `connect` again. Throws
   * `ProtocolError` if the endpoint refuses to let the client listen.
   * @param {{ signal?: AbortSignal }} [options]
   * @returns {Promise<void>}
   */
  async connect({ signal } = {}) {
    if (this.#ended !== null) throw this.#ended;
    if (this.#state !== "new") throw new TypeError("a client connects once");
    this.#state = "connecting";
    try {
      const reasons = [];
      for (let tried = 0; tried < this.#urls.length; tried++) {
        try {
          this.#use(await this.#open(signal), false);
          return;
        } catch (error) {
          if (!(error instanceof Unreachable)) throw error;
          reasons.push(error.message);
        }
      }
      throw new ConnectFailed(reasons.join("; "));
    } finally {
      if (this.#state === "connecting") this.#state = "new";
    }
  }

  /**
   * Close the connection and end the iteration. Unfinished commands reject with `ClosedForGood`. Throws the error of a
   * handler that failed. You can call `close` several times.
   * @returns {Promise<void>}
   */
  async close() {
    this.#end(new ClosedForGood(1000, "closed by this program"));
    await this.#socket?.end();
    await this.#renewing;
    if (this.#failure !== null) throw this.#failure.error;
  }

  // -- commands

  /**
   * Receive this client's messages here, also after reconnecting. SPEC section 2. `onEnded` gets the subscriptions that
   * have ended meanwhile.
   * @param {WaitOptions} [options]
   * @returns {Promise<void>}
   */
  async listen(options) {
    const reply = await this.#request(this.#listenBody(), true, options);
    this.#listening = true;
    this.#listens(reply);
  }

  /**
   * Stop receiving this client's messages.
   * @param {WaitOptions} [options]
   * @returns {Promise<void>}
   */
  async unlisten(options) {
    this.#listening = false;
    this.#renewals.left(Date.now());
    this.#recovery?.left();
    await this.#request(this.#body("unlisten", {}), true, options);
  }

  /**
   * Replace this client's bounds with a preset, or with a list of rules (SPEC section 2.8). `[]` removes all bounds.
   * The endpoint first delivers the messages that it holds under the previous bounds. If the client does not listen,
   * the endpoint refuses with `bad_state`. The client keeps the new bounds after reconnecting.
   * @param {Bounds} bounds
   * @param {WaitOptions} [options]
   * @returns {Promise<void>}
   */
  async setBounds(bounds, options) {
    const said = checkBounds(bounds);
    const former = this.#said;
    this.#said = said; // now, because the client may send a `listen` meanwhile
    try {
      const reply = await this.#request(this.#body("bounds", { bounds: said }), true, options);
      this.#bounds = reply.bounds;
    } catch (error) {
      if (error instanceof ProtocolError && this.#said === said) this.#said = former;
      throw error;
    }
  }

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
  async subscribe(topics, options = {}) {
    const chosen = listOf(topics);
    const { filter, replace = false } = options;
    const term = termFields(options.until === undefined ? this.#until : options.until, options.ttlS);
    const asked = { ...term, ...keptFields(options.last, options.since) };
    const fields = { ...filterFields(filter), ...(replace ? { replace } : {}), ...asked };
    const text = filter && filterText(filter);
    if (replace) this.#renewals.gone(chosen); // now, so that no renewal restores them meanwhile
    const beganMs = Date.now();
    const replies = await this.#withTopics("subscribe", chosen, options, fields);
    if (replace) this.#renewals.gone(chosen); // again, in case an earlier subscribe was still running
    this.#renewals.subscribed(chosen, text, term, replies, beganMs);
  }

  /**
   * Undo `subscribe`, in the same way. Remove all subscriptions to these topics, or only the subscriptions with this
   * `filter`.
   * @param {string | readonly string[]} topics
   * @param {UnsubscribeOptions} [options]
   * @returns {Promise<void>}
   */
  async unsubscribe(topics, options = {}) {
    const chosen = listOf(topics);
    const fields = filterFields(options.filter);
    const text = options.filter && filterText(options.filter);
    const gone = () => (text === undefined ? this.#renewals.gone(chosen) : this.#renewals.out(chosen, text));
    gone(); // now, so that no renewal restores it meanwhile
    await this.#withTopics("unsubscribe", chosen, options, fields);
    gone(); // again, in case an earlier subscribe was still running
  }

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
  async publish(topic, payload, options = {}) {
    /** @type {Record<string, unknown>} */
    const fields = { topic: checkTopic(topic), payload, ...keepFields(options.keepS) };
    Object.assign(fields, aboutFields(options.item, options.weight));
    if (options.timestamp !== undefined) fields.timestamp = options.timestamp;
    return this.#publish("publish", fields, options);
  }

  /**
   * Publish [topic, payload] pairs together, without acknowledgements. With `lines`, they share one message per MiB.
   * The options are those of `publish`. With `dedup: "retry"`, each message has its own key. Any other string is the
   * key of all messages. `keepS`, `item` and `weight` also apply to all messages. The client checks all messages before
   * it sends the first.
   * @param {Iterable<readonly [string, unknown]>} messages
   * @param {{ dedup?: boolean | string, keepS?: number, item?: string, weight?: number } & WaitOptions} [options]
   * @returns {Promise<void>}
   */
  async publishMany(messages, options = {}) {
    const { dedup = true } = options;
    const shared = { ...keepFields(options.keepS), ...aboutFields(options.item, options.weight) };
    const bodies = [];
    for (const [topic, payload] of messages) {
      const fields = { topic: checkTopic(topic), payload, ...shared, ...this.#dedup(dedup) };
      bodies.push(`${this.#body("publish", fields)}}`);
    }
    await this.#write(bodies, dedup !== false, options);
  }

  /**
   * Publish to every listening client. The options are those of `publish`.
   * @param {unknown} payload
   * @param {BroadcastOptions & WaitOptions} [options]
   * @returns {Promise<boolean | undefined>}
   */
  async broadcast(payload, options = {}) {
    return this.#publish("broadcast", { payload }, options);
  }

  /**
   * Return the retained messages of a topic, the oldest first: the latest `limit`, the latest `last`, or those after
   * the message whose `mid` is `since`. To read page by page, repeat the call with `since: page.mid` while `page.more`
   * is true. `forbidden`: the token does not permit subscribing to the topic. `bad_state`: endpoints retain no
   * messages.
   * @param {string} topic
   * @param {HistoryOptions & WaitOptions} [options]
   * @returns {Promise<History>}
   */
  async history(topic, options = {}) {
    const fields = { topic: checkTopic(topic), ...historyFields(options) };
    return historyOf(await this.#request(this.#body("history", fields), true, options));
  }

  /**
   * Iterate over this client's subscriptions, grouped by topic. The client reads them in pages of at most `limit`
   * topics.
   * @param {{ limit?: number } & WaitOptions} [options]
   * @returns {AsyncGenerator<Subscription, void, void>}
   */
  subscriptions(options = {}) {
    return subscriptionsOf(this.#asking(options), options.limit ?? 1000);
  }

  /**
   * Iterate over a topic's subscribers, in the order of their ids. Each result says whether the subscriber listens
   * somewhere. The client reads pages of at most `limit` subscribers, and can miss changes made meanwhile. `forbidden`:
   * the token does not permit this (`presence`).
   * @param {string} topic
   * @param {{ limit?: number } & WaitOptions} [options]
   * @returns {AsyncGenerator<Subscriber, void, void>}
   */
  subscribers(topic, options = {}) {
    return subscribersOf(this.#asking(options), topic, options.limit ?? 1000);
  }

  /**
   * @param {WaitOptions} options
   * @returns {Ask}
   */
  #asking(options) {
    return (command, fields) => this.#request(this.#body(command, fields), true, options);
  }

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
  async revoke({ jti, sub, expiresAt }, options) {
    /** @type {Record<string, unknown>} */
    const fields = checkRevoke(jti, sub);
    if (expiresAt !== undefined) fields.expires_at = expiresAt;
    const reply = await this.#request(this.#body("revoke", fields), true, options);
    return { expiresAt: reply.expires_at, issuedUntil: reply.issued_until ?? null };
  }

  // -- notifications

  /**
   * Iterate over the notifications in the order of arrival, including those received before the client ended. The
   * iteration ends after `close`. It throws `ClosedForGood` or `ProtocolError` if the endpoint ended the client. Only
   * one iteration can run at a time.
   * @returns {AsyncGenerator<Notification, void, void>}
   */
  [Symbol.asyncIterator]() {
    return this.notifications();
  }

  /**
   * Iterate over the notifications until the signal is aborted. The iteration then throws the signal's reason.
   * @param {{ signal?: AbortSignal }} [options]
   * @returns {AsyncGenerator<Notification, void, void>}
   */
  notifications({ signal } = {}) {
    if (this.#options.onNotification !== undefined) {
      throw new TypeError("onNotification replaces the iterator");
    }
    return this.#inbox.notifications(signal);
  }

  // -- internals

  /**
   * Start to use a connection, on which the client already listens if it has to. Throws if the connection or the client
   * has ended since.
   * @param {Socket} socket
   * @param {boolean} isAnother
   */
  #use(socket, isAnother) {
    this.#fresh = null;
    if (this.#ended !== null || socket.isOver) {
      this.#url = null;
      socket.abort();
      throw this.#ended ?? new Unreachable(socket.why);
    }
    this.#socket = socket;
    this.#usedMs = performance.now();
    this.#state = "running";
    if (isAnother) this.#reconnects += 1;
    this.#lastFailure = null;
    if (this.#inbox.isFull) socket.pause();
    this.#changed.ring();
    this.#tell(() => this.#options.onConnected?.(/** @type {string} */ (this.#url)));
    const listened = this.#listened;
    this.#listened = null;
    if (listened !== null) this.#listens(listened);
  }

  /**
   * Process the reply to a successful `listen`.
   * @param {Record<string, any>} reply
   */
  #listens(reply) {
    this.#bounds = reply.bounds ?? [];
    this.#renewals.listened(reply);
    if (this.#recovery?.listens()) this.#inbox.mark({ gap: null });
    this.#release();
  }

  /** Apply the held position if positions cover all topics again. */
  #release() {
    if (this.#recovery === null || !this.#isCovered()) return;
    const position = this.#recovery.release();
    if (position !== null) this.#positioned(position);
  }

  /**
   * Return whether a position covers all topics of this client. Ended subscriptions are not covered until they are
   * renewed.
   */
  #isCovered() {
    return this.#recovery?.isListening === true && !this.#renewals.isRenewing;
  }

  /**
   * @param {Socket} socket
   */
  #over(socket) {
    if (socket === this.#fresh) {
      this.#fresh = null;
      this.#replies.fail(new Unreachable(socket.why));
      return;
    }
    if (socket !== this.#socket) return;
    this.#socket = this.#url = null;
    if (performance.now() - this.#usedMs >= LASTED_MS) this.#failures = 0;
    const lost = new ConnectionLost(socket.why, socket.closeCode);
    this.#replies.fail(this.#ended ?? lost);
    if (this.#ended !== null) return;
    if (this.#listening) this.#recovery?.left();
    // After this code the endpoints consider the client gone, even if it has heard from them since.
    if (this.#listening) this.#renewals.left(socket.closeCode === SUBSCRIPTIONS_ENDED ? -Infinity : socket.heardMs);
    this.#lastFailure = lost;
    this.#tell(() => this.#options.onLost?.(lost));
    const reason = socket.closeCode === null ? undefined : CLOSED_FOR_GOOD[socket.closeCode];
    if (reason !== undefined) this.#end(new ClosedForGood(/** @type {number} */ (socket.closeCode), reason));
    else this.#renewing = this.#renew();
  }

  /** Connect again. An error that no retry can cure ends the client. Never rejects. */
  async #renew() {
    try {
      for (;;) {
        const delayMs = this.#delayMs(this.#failures);
        this.#failures += 1;
        await sleep(delayMs, this.#ending.signal);
        try {
          this.#use(await this.#open(undefined), true);
          return;
        } catch (error) {
          if (!(error instanceof Unreachable)) throw error;
          this.#lastFailure = error;
          this.#tell(() => this.#options.onUnreachable?.(error));
        }
      }
    } catch (error) {
      // The endpoint refused to let the client listen, or the client has already ended with this error.
      this.#end(error instanceof Error ? error : new TypeError(String(error)));
    }
  }

  /**
   * Connect to the next URL of the list, and listen there before any other command, if the client listens. Throws
   * `Unreachable` if the next URL may work.
   * @param {AbortSignal | undefined} signal
   * @returns {Promise<Socket>}
   */
  async #open(signal) {
    const url = this.#urls[this.#nextUrl];
    this.#nextUrl = (this.#nextUrl + 1) % this.#urls.length;
    const { timeoutMs, maxFrameBytes, ca, lines } = this.#options;
    this.#listened = null; // from a failed connection
    const late = () => new Unreachable(`${shown(url)}: no answer within ${timeoutMs} ms`);
    return limited(timeoutMs, signal, late, async (limit) => {
      const attempt = new AbortController();
      const forget = [limit, this.#ending.signal].map((by) => onAbort(by, () => attempt.abort(by.reason)));
      /** @type {Socket | null} */
      let socket = null;
      try {
        const token = await raced(this.#token(url), attempt.signal);
        socket = await /** @type {typeof Client} */ (this.constructor).connectSocket(url, {
          token,
          ca,
          lines,
          messageBytesMax: GROWTH_MAX * Math.max(maxFrameBytes, FRAME_BYTES_MAX),
          signal: attempt.signal,
          onMessage: (from, text) => this.#received(from, text),
          onOver: (from) => this.#over(from),
        });
        attempt.signal.throwIfAborted();
        if (this.#options.overflow === "pause" && !socket.canPause) {
          throw new TypeError("overflow: 'pause' needs Node's connections; a browser's cannot be paused");
        }
        this.#url = url; // before the messages that follow a `listen` arrive
        this.#credit?.begin();
        if (this.#listening) await this.#listenFirst(socket, attempt.signal);
        if (socket.isOver) throw new Unreachable(socket.why);
        return socket;
      } catch (error) {
        this.#url = this.#fresh = null;
        socket?.abort();
        if (this.#failure !== null) throw this.#failure.error;
        if (error instanceof ProtocolError && error.next === "retry") throw new Unreachable(`${shown(url)}: ${error.message}`);
        if (error instanceof Unreachable && !error.message.startsWith(shown(url))) {
          throw new Unreachable(`${shown(url)}: ${error.message}`, { cause: error.cause });
        }
        throw error;
      } finally {
        for (const one of forget) one();
      }
    });
  }

  /**
   * @param {string} url
   * @returns {Promise<string | null>}
   */
  async #token(url) {
    const { token } = this.#options;
    if (token === undefined) return null;
    if (typeof token === "string") return token;
    try {
      return checkToken(await token());
    } catch (error) {
      // The issuer can be unreachable, or can return a page instead of a token. In both cases, try again.
      throw new Unreachable(`${shown(url)}: no token: ${error instanceof Error ? error.message : error}`, { cause: error });
    }
  }

  /**
   * @param {Socket} socket
   * @param {AbortSignal} signal
   */
  async #listenFirst(socket, signal) {
    if (socket.isOver) throw new Unreachable(socket.why);
    this.#fresh = socket;
    this.#listened = await this.#ask(socket, this.#listenBody(), signal);
  }

  /**
   * Process a message from a connection. If the message is invalid, the client closes the connection.
   * @param {Socket} socket
   * @param {string} text
   */
  #received(socket, text) {
    if (this.#ended !== null) return;
    try {
      this.#dispatch(text);
    } catch (error) {
      if (!(error instanceof Garbage)) throw error;
      socket.giveUp(error.message);
      return;
    }
    // A connection that does not listen yet keeps reading, because the reply must arrive even if the queue is full.
    if (socket === this.#socket && this.#inbox.isFull) {
      socket.pause();
      this.#inbox.paused();
    }
  }

  /** @param {string} text */
  #dispatch(text) {
    let message;
    try {
      message = JSON.parse(text);
    } catch (error) {
      throw new Garbage(`the endpoint sent invalid JSON: ${error instanceof Error ? error.message : error}`);
    }
    if (typeof message !== "object" || message === null || Array.isArray(message)) {
      throw new Garbage("the endpoint sent JSON that is not an object");
    }
    if (Object.hasOwn(message, "broadcast")) {
      this.#inbox.put(notificationOf(message));
    } else if ("result" in message || "error" in message) {
      this.#replies.settle(message);
      // The reply to a `listen`. Its position counts only if the endpoint sends no missed messages after it.
      if (message.recovering === false && isPosition(message.position)) this.#positioned(message.position);
    } else {
      const { gap, position } = markOf(message);
      if (gap !== undefined) this.#inbox.mark({ gap });
      if (position !== undefined) this.#positioned(position);
    }
  }

  /**
   * Note that all retained messages up to this position have arrived.
   * @param {string} position
   */
  #positioned(position) {
    const recovery = this.#recovery;
    if (recovery === null) return; // nobody needs it
    if (!this.#isCovered()) {
      recovery.hold(position);
      return;
    }
    recovery.receive(position);
    this.#inbox.mark({ position });
  }

  /**
   * Yield the topics to which the client is subscribed, and the topics of subscriptions that it renews. A topic can
   * occur twice.
   * @param {AbortSignal} signal
   */
  async *#ownTopics(signal) {
    if (this.#state !== "running") await this.#changed.wait(this.#ending.signal);
    yield* this.#renewals.topics;
    for await (const { topic } of this.subscriptions({ limit: OWN_TOPICS_PAGE, signal })) yield topic;
  }

  /**
   * @param {string} command
   * @param {readonly string[]} topics
   * @param {WaitOptions | undefined} options
   * @param {Record<string, unknown>} [fields]
   */
  async #withTopics(command, topics, options, fields) {
    const bodies = this.#topicBodies(command, topics, fields);
    return paced(bodies, options?.signal, (text, signal) => {
      const longerMs = options?.timeoutMs === undefined ? text.length * MS_PER_CHARACTER : 0;
      return this.#request(text, true, { timeoutMs: options?.timeoutMs, signal }, longerMs);
    });
  }

  /**
   * @param {string} command
   * @param {readonly string[]} topics
   * @param {Record<string, unknown>} [fields]
   */
  #topicBodies(command, topics, fields) {
    const bytesMax = Math.min(this.#options.maxFrameBytes, TOPICS_BYTES_MAX);
    const topicsMax = fields?.last === undefined && fields?.since === undefined ? undefined : SINCE_TOPICS_MAX;
    return topicBodies(command, this.#clientId, topics, bytesMax, fields, topicsMax);
  }

  /**
   * Try to renew these subscriptions. Resolves to null if this is not possible now. Throws `ProtocolError` if the
   * endpoint refuses permanently.
   * @param {Again} again
   * @returns {Promise<Record<string, any>[] | null>}
   */
  async #subscribeOnce({ topics, fields }) {
    const { signal } = this.#ending;
    const { timeoutMs } = this.#options;
    const late = () => this.#late(`no answer within ${timeoutMs} ms`);
    // Until these subscriptions are renewed, no later position counts as received. So this position is from before
    // their end. If the client no longer listens, the missed messages arrive when it listens again.
    const since = (this.#listening ? this.#recovery?.received : null) ?? null;
    const missed = since === null ? {} : { since };
    try {
      return await limited(timeoutMs, signal, late, async (limit) => {
        const replies = [];
        for (const text of this.#topicBodies("subscribe", topics, { ...fields, ...missed })) {
          replies.push(await this.#ask(await this.#writable(false, limit), text, limit));
        }
        return replies;
      });
    } catch (error) {
      if (error instanceof ProtocolError && error.next !== "retry" && !signal.aborted) throw error;
      return null; // a later try will succeed, or the client has ended
    }
  }

  /** @returns {Promise<Record<string, any> | null>} null if the client does not listen, or cannot listen now. */
  async #listenOnceMore() {
    if (!this.#listening) return null;
    try {
      return await this.#request(this.#listenBody(), true, { signal: this.#ending.signal });
    } catch {
      return null; // the next `listen` reports the subscriptions that this one did not name
    }
  }

  /**
   * @param {string} command
   * @param {Record<string, unknown>} fields
   * @param {BroadcastOptions & WaitOptions} options
   */
  async #publish(command, fields, options) {
    const { ack = false, dedup = true } = options;
    Object.assign(fields, this.#dedup(dedup));
    if (ack) {
      fields.ack = true;
      const reply = await this.#request(this.#body(command, fields), dedup !== false, options);
      return dedup !== "retry" && reply.duplicate === true;
    }
    await this.#write([`${this.#body(command, fields)}}`], dedup !== false, options);
    return undefined;
  }

  /**
   * @param {boolean | string} dedup
   * @returns {{ dedup?: boolean | string }}
   */
  #dedup(dedup) {
    if (dedup === true) return {};
    return { dedup: dedup === "retry" ? this.#keys.next() : checkDedup(dedup) };
  }

  /**
   * Write these commands together. They get no reply.
   * @param {readonly string[]} frames
   * @param {boolean} retry
   * @param {WaitOptions} options
   */
  async #write(frames, retry, { timeoutMs = this.#options.timeoutMs, signal }) {
    signal?.throwIfAborted();
    let socket = this.#socket;
    if (socket === null || this.#ended !== null || !socket.takesMore) {
      const late = () => this.#late(`not written within ${timeoutMs} ms`);
      socket = await limited(timeoutMs, signal, late, (limit) => this.#writable(retry, limit));
    }
    socket.write(frames);
  }

  /**
   * Wait for a connection that accepts more data. Without `retry`, it must be the current connection, if there is one.
   * @param {boolean} retry
   * @param {AbortSignal} signal
   * @returns {Promise<Socket>}
   */
  async #writable(retry, signal) {
    if (this.#state !== "running" && this.#ended === null) throw new TypeError("not connected: call `connect` first");
    for (;;) {
      if (this.#ended !== null) throw this.#ended;
      const socket = this.#socket;
      if (socket === null) {
        await this.#changed.wait(signal);
        continue;
      }
      if (socket.takesMore) return socket;
      await socket.drained(signal);
      if (socket.isOver && !retry) throw this.#ended ?? new ConnectionLost(socket.why, socket.closeCode);
    }
  }

  /**
   * Send a command, and wait for its reply. With `retry`, repeat this while a repetition can help and time is left.
   * @param {string} text
   * @param {boolean} retry
   * @param {WaitOptions | undefined} options
   * @param {number} [longerMs] Extra time for a reply. Within it, a refused command is not repeated.
   * @returns {Promise<Record<string, any>>}
   */
  async #request(text, retry, options, longerMs = 0) {
    const leastMs = options?.timeoutMs ?? this.#options.timeoutMs;
    const timeoutMs = leastMs + longerMs;
    const patientUntilMs = performance.now() + leastMs;
    /** @type {ProtocolError | null} */
    let last = null;
    /** @type {ConnectionLost | null} */
    let lost = null;
    const late = () => last ?? this.#late(`no answer within ${timeoutMs} ms`, lost);
    return limited(timeoutMs, options?.signal, late, async (limit) => {
      while (this.#inFlight >= IN_FLIGHT_MAX) await this.#slotFree.wait(limit);
      this.#inFlight += 1;
      try {
        for (let attempt = 0; ; attempt++) {
          try {
            return await this.#ask(await this.#writable(false, limit), text, limit);
          } catch (error) {
            if (retry && error instanceof ConnectionLost) lost = error;
            else if (retry && error instanceof ProtocolError && error.next === "retry" && performance.now() < patientUntilMs)
              last = error;
            else throw error;
          }
          await sleep(this.#delayMs(attempt), limit);
        }
      } finally {
        this.#inFlight -= 1;
        this.#slotFree.ringOne();
      }
    });
  }

  /**
   * @param {Socket} socket
   * @param {string} text
   * @param {AbortSignal} signal
   * @returns {Promise<Record<string, any>>}
   */
  async #ask(socket, text, signal) {
    const { id, promise } = this.#replies.expect();
    try {
      socket.write([`${text},"id":${id}}`]);
      return await raced(promise, signal);
    } finally {
      this.#replies.forget(id);
    }
  }

  /**
   * @param {string} text
   * @param {ConnectionLost | null} [lost]
   */
  #late(text, lost = null) {
    this.#socket?.probe();
    const last = this.#lastFailure ?? lost;
    return last === null ? new CommandTimeout(text) : new CommandTimeout(`${text}; ${last.message}`, { cause: last });
  }

  /** @param {() => void} call */
  #tell(call) {
    try {
      call();
    } catch (error) {
      this.#fail(error);
    }
  }

  /**
   * End the client, because a handler has failed.
   * @param {unknown} error
   */
  #fail(error) {
    this.#failure ??= { error };
    this.#end(error instanceof Error ? error : new TypeError(`a handler threw ${String(error)}`));
    this.#socket?.abort();
  }

  /** @param {Error} why */
  #end(why) {
    if (this.#ended !== null) return;
    this.#ended = why;
    this.#ending.abort(why);
    this.#replies.fail(why);
    this.#changed.ring();
    this.#credit?.stop();
    this.#inbox.ended();
    this.#closed.resolve(why instanceof ClosedForGood && why.closeCode === 1000 ? null : why);
  }

  /** @param {number} attempt */
  #delayMs(attempt) {
    // Full jitter (Brooker, "Exponential Backoff And Jitter", 2015). 2 ** 32 is beyond any sensible maximum.
    const { random, backoffMaxMs, backoffBaseMs } = this.#options;
    return random() * Math.min(backoffMaxMs, backoffBaseMs * 2 ** Math.min(attempt, 32));
  }

  #listenBody() {
    /** @type {Record<string, unknown>} */
    const fields = { ...this.#recovery?.fields };
    if (this.#said !== undefined) fields.bounds = this.#said;
    if (this.#options.window !== undefined) fields.window = this.#options.window;
    return this.#body("listen", fields);
  }

  /** @param {number} count */
  #confirm(count) {
    // A new connection can receive messages before the client gets the reply to `listen`.
    (this.#fresh ?? this.#socket)?.write([`${this.#body("credit", { count })}}`]);
  }

  /**
   * @param {string} command
   * @param {Record<string, unknown>} fields
   */
  #body(command, fields) {
    return body(command, this.#clientId, fields, this.#options.maxFrameBytes);
  }
}

/**
 * @param {string | readonly string[]} topics
 * @returns {readonly string[]}
 */
function listOf(topics) {
  const chosen = typeof topics === "string" ? [topics] : topics;
  if (!Array.isArray(chosen)) throw new TypeError("topics have to be a string, or an array of strings");
  return chosen;
}

/**
 * @param {Record<string, any>} message
 * @returns {Notification}
 */
function notificationOf({ key = null, broadcast, mid, kept, skipped = 0 }) {
  if (key !== null && typeof key !== "string") throw new Garbage("the endpoint sent a key that is not a string");
  if (!Number.isInteger(skipped) || skipped < 0) throw new Garbage("the endpoint sent a `skipped` that is not a count");
  if (mid === undefined) return { key, broadcast, skipped };
  if (typeof mid !== "string") throw new Garbage("the endpoint sent a mid that is not a string");
  return kept === true ? { key, broadcast, skipped, mid, kept } : { key, broadcast, skipped, mid };
}
