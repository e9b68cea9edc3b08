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

import { Renewals, SUBSCRIPTIONS_ENDED } from "./again.js";
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

/** Commands that wait for their replies; more would only grow the time-outs, since an endpoint answers in order. */
const IN_FLIGHT_MAX = 1024;

/**
 * A connection that lasted this long, in milliseconds, was of use: after it the backoff begins where it began. Messages do
 * not tell: a publisher without acknowledgements hears none, and an endpoint that closes behind each `listen` has sent
 * one.
 */
const LASTED_MS = 10_000;

/** A large subscribe is sent as commands of so many bytes. */
const TOPICS_BYTES_MAX = 256 * 1024;

/**
 * By its topics a subscribe or unsubscribe has so much longer than other commands, in milliseconds a character: a slow
 * store takes 20 ms a topic, and topics have 10 characters or more.
 */
const MS_PER_CHARACTER = 2;

/** Topics in a page of those that a gap is looked for in: the most that an endpoint gives. */
const OWN_TOPICS_PAGE = 10_000;

/**
 * A number may grow when it is written again (`1e15` becomes `1000000000000000.0`), nearly fourfold at worst, so a
 * notification may be longer than the publish it comes from; and a page of `subscriptions` than any command.
 */
const GROWTH_MAX = 4;

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
export class Client {
  /**
   * What connections are made with: a subclass says.
   * @internal
   * @type {Connect}
   */
  static connectSocket = () => {
    throw new TypeError("import Client from `ingeborg-client`, or from src/index.js");
  };

  /**
   * Whether it lives as long as a page does, and its client id with it: a subclass says.
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
  #failures = 0; // attempts in a row after which no connection lasted; what the backoff grows with
  #usedMs = 0; // when the present connection came into use, as of `performance.now()`
  /** @type {Socket | null} */
  #socket = null; // where commands go
  /** @type {Socket | null} */
  #fresh = null; // one that only listens yet
  #state = /** @type {"new" | "connecting" | "running"} */ ("new");
  #changed = new Bell(); // there is a connection
  /** @type {Error | null} */
  #ended = null;
  #ending = new AbortController(); // aborted with what ended it
  /** @type {{ error: unknown } | null} */
  #failure = null; // a handler's
  #renewing = Promise.resolve();
  /** @type {Unreachable | ConnectionLost | null} */
  #lastFailure = null;
  #keys = new FreshKeys();
  #replies;
  #inFlight = 0;
  #slotFree = new Bell();
  #recovery;
  #inbox;
  /** @type {ReturnType<typeof deferred<Error | null>>} */
  #closed = deferred();
  #renewals;
  /** @type {Record<string, any> | null} */
  #listened = null; // the reply to the `listen` of a new connection, not looked at yet

  /** @type {string | null} */
  #url = null;
  #reconnects = 0;

  /**
   * @param {string | readonly string[]} urls One `ws:` or `wss:` URL or several, tried in order and round again.
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
    // Whose position is saved comes back, with its id: its subscriptions have to be there then.
    const comesBack = options.recover !== undefined && options.recover !== true;
    const isPassing = new.target.isInPage && !comesBack;
    this.#until = options.until === undefined ? (isPassing ? "disconnect" : null) : options.until;
    this.#replies = new Replies((error) => this.#tell(() => this.#options.onError?.(error)));
    this.#recovery = recoveryOf(this.#options.recover);
    this.#inbox = new Inbox(this.#options, this.#recovery, {
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
   * A client that is connected. Throws as `connect` does.
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

  // -- what can be looked at

  get clientId() {
    return this.#clientId;
  }

  /** Where it is connected; null: nowhere. */
  get url() {
    return this.#url;
  }

  /** Whether it listens, or will again when it is connected. */
  get listening() {
    return this.#listening;
  }

  get reconnects() {
    return this.#reconnects;
  }

  /** Notifications dropped because the queue was full. */
  get dropped() {
    return this.#inbox.dropped;
  }

  /** Notifications that wait. */
  get queued() {
    return this.#inbox.length;
  }

  /**
   * With `recover`: all that was kept up to here has been processed. It is what a program saves, and gives to `recover`
   * the next time. null: none is known yet.
   */
  get position() {
    return this.#recovery?.position ?? null;
  }

  /** With `recover`: messages that came once more, and were dropped. */
  get repeats() {
    return this.#recovery?.repeats ?? 0;
  }

  /** Replies to commands that nobody waited for any more. */
  get lateReplies() {
    return this.#replies.late;
  }

  /** The latest errors of unacknowledged publishes, 1,000 at most. */
  get errors() {
    return this.#replies.errors;
  }

  /** All of them, by code. */
  get errorCounts() {
    return this.#replies.errorCounts;
  }

  /** Fulfilled when the client has ended: with null after `close`, else with what ended it. Never rejected. */
  get closed() {
    return this.#closed.promise;
  }

  // -- life

  /**
   * Try each URL once. `ConnectFailed`: none works, and it may be called again; `ProtocolError`: listening is refused
   * for good.
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
   * Close the connection and end the iteration. Commands under way reject with `ClosedForGood`. Throws what a handler
   * has thrown. May be called again.
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
   * Receive this client's messages here, after reconnecting too. SPEC section 2. What has ended meanwhile is told to
   * `onEnded`.
   * @param {WaitOptions} [options]
   * @returns {Promise<void>}
   */
  async listen(options) {
    const reply = await this.#request(this.#listenBody(), true, options);
    this.#listening = true;
    this.#listens(reply);
  }

  /**
   * Receive no more of them.
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
  async subscribe(topics, options = {}) {
    const chosen = listOf(topics);
    const { filter, replace = false } = options;
    const term = termFields(options.until === undefined ? this.#until : options.until, options.ttlS);
    const asked = { ...term, ...keptFields(options.last, options.since) };
    const fields = { ...filterFields(filter), ...(replace ? { replace } : {}), ...asked };
    const text = filter && filterText(filter);
    if (replace) this.#renewals.gone(chosen); // now, so that none of it is subscribed to again meanwhile
    const beganMs = Date.now();
    const replies = await this.#withTopics("subscribe", chosen, options, fields);
    if (replace) this.#renewals.gone(chosen); // and if a subscribe was under way before
    this.#renewals.subscribed(chosen, text, term, replies, beganMs);
  }

  /**
   * Undo `subscribe`, in the same way: everything that the client has at these topics, or only the subscription with this
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
    gone(); // now, so that it is not subscribed to again meanwhile
    await this.#withTopics("unsubscribe", chosen, options, fields);
    gone(); // and if a subscribe was under way before
  }

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
  async publish(topic, payload, options = {}) {
    /** @type {Record<string, unknown>} */
    const fields = { topic: checkTopic(topic), payload, ...keepFields(options.keepS) };
    if (options.timestamp !== undefined) fields.timestamp = options.timestamp;
    return this.#publish("publish", fields, options);
  }

  /**
   * Publish [topic, payload] pairs in one go, without acknowledgements: with `lines` as one message for each MiB.
   * Otherwise as `publish`: with `dedup: "retry"` each has a key of its own, any other string is the key of all. All are
   * checked before the first is sent.
   * @param {Iterable<readonly [string, unknown]>} messages
   * @param {{ dedup?: boolean | string, keepS?: number } & WaitOptions} [options]
   * @returns {Promise<void>}
   */
  async publishMany(messages, options = {}) {
    const { dedup = true } = options;
    const kept = keepFields(options.keepS);
    const bodies = [];
    for (const [topic, payload] of messages) {
      const fields = { topic: checkTopic(topic), payload, ...kept, ...this.#dedup(dedup) };
      bodies.push(`${this.#body("publish", fields)}}`);
    }
    await this.#write(bodies, dedup !== false, options);
  }

  /**
   * Publish to every listening client there is. Otherwise as `publish`.
   * @param {unknown} payload
   * @param {BroadcastOptions & WaitOptions} [options]
   * @returns {Promise<boolean | undefined>}
   */
  async broadcast(payload, options = {}) {
    return this.#publish("broadcast", { payload }, options);
  }

  /**
   * The kept messages of a topic, the oldest first: the latest `limit`, the `last` so many, or those after the message
   * whose `mid` is `since`. So pages are read with `since: page.mid` as long as there are `more`. `forbidden`: the token
   * does not permit to subscribe to it. `bad_state`: no endpoint keeps messages.
   * @param {string} topic
   * @param {HistoryOptions & WaitOptions} [options]
   * @returns {Promise<History>}
   */
  async history(topic, options = {}) {
    const fields = { topic: checkTopic(topic), ...historyFields(options) };
    return historyOf(await this.#request(this.#body("history", fields), true, options));
  }

  /**
   * This client's subscriptions, those to one topic one after the other, read in pages of at most `limit` topics.
   * @param {{ limit?: number } & WaitOptions} [options]
   * @returns {AsyncGenerator<Subscription, void, void>}
   */
  subscriptions(options = {}) {
    return subscriptionsOf(this.#asking(options), options.limit ?? 1000);
  }

  /**
   * A topic's subscribers, in the order of their ids, and whether each listens somewhere. Read in pages of at most
   * `limit`: what changes meanwhile may be missed. `forbidden`: the token does not permit it (`presence`).
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
  async revoke({ jti, sub, expiresAt }, options) {
    /** @type {Record<string, unknown>} */
    const fields = checkRevoke(jti, sub);
    if (expiresAt !== undefined) fields.expires_at = expiresAt;
    const reply = await this.#request(this.#body("revoke", fields), true, options);
    return { expiresAt: reply.expires_at, issuedUntil: reply.issued_until ?? null };
  }

  // -- notifications

  /**
   * The notifications as they come, those that were received before the end included. Ends after `close`; throws
   * `ClosedForGood` or `ProtocolError` when the endpoint ended it. One iteration at a time.
   * @returns {AsyncGenerator<Notification, void, void>}
   */
  [Symbol.asyncIterator]() {
    return this.notifications();
  }

  /**
   * The same, until the signal is aborted: then it throws the signal's reason.
   * @param {{ signal?: AbortSignal }} [options]
   * @returns {AsyncGenerator<Notification, void, void>}
   */
  notifications({ signal } = {}) {
    if (this.#options.onNotification !== undefined) {
      throw new TypeError("onNotification takes the place of the iterator");
    }
    return this.#inbox.notifications(signal);
  }

  // -- from here on: inside

  /**
   * A connection is there and listens, if it has to; unless it is over again, or the client is, since it was made.
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
   * It listens, says this reply.
   * @param {Record<string, any>} reply
   */
  #listens(reply) {
    this.#renewals.listened(reply);
    if (this.#recovery?.listens()) this.#inbox.mark({ gap: null });
    this.#release();
  }

  /** Positions count again, if they do. */
  #release() {
    if (this.#recovery === null || !this.#isCovered()) return;
    const position = this.#recovery.release();
    if (position !== null) this.#positioned(position);
  }

  /** Does a position cover all topics of this client? Not of those that have ended, until they are back. */
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
    // After this code endpoints have taken it for gone, whatever it has heard.
    if (this.#listening) this.#renewals.left(socket.closeCode === SUBSCRIPTIONS_ENDED ? -Infinity : socket.heardMs);
    this.#lastFailure = lost;
    this.#tell(() => this.#options.onLost?.(lost));
    const reason = socket.closeCode === null ? undefined : CLOSED_FOR_GOOD[socket.closeCode];
    if (reason !== undefined) this.#end(new ClosedForGood(/** @type {number} */ (socket.closeCode), reason));
    else this.#renewing = this.#renew();
  }

  /** Never rejects: what goes wrong for good ends the client. */
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
      // Listening was refused for good; or it has ended already, and this is why.
      this.#end(error instanceof Error ? error : new TypeError(String(error)));
    }
  }

  /**
   * Connect to the next URL of the list, and listen there before anybody else's command, if it is listening.
   * `Unreachable`: the next may work.
   * @param {AbortSignal | undefined} signal
   * @returns {Promise<Socket>}
   */
  async #open(signal) {
    const url = this.#urls[this.#nextUrl];
    this.#nextUrl = (this.#nextUrl + 1) % this.#urls.length;
    const { timeoutMs, maxFrameBytes, ca, lines } = this.#options;
    this.#listened = null; // of one that came to nothing
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
        this.#url = url; // before anything comes of listening
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
      // The issuer may be out of reach as an endpoint may, and a page may come in place of a token: ask again.
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
   * A message of a connection's. What is wrong with it costs the endpoint the connection.
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
    // Not while it only listens: its reply has to come, however full the queue is.
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
      throw new Garbage(`the endpoint sent what is not JSON: ${error instanceof Error ? error.message : error}`);
    }
    if (typeof message !== "object" || message === null || Array.isArray(message)) {
      throw new Garbage("the endpoint sent what is not a JSON object");
    }
    if (Object.hasOwn(message, "broadcast")) {
      this.#inbox.put(notificationOf(message));
    } else if ("result" in message || "error" in message) {
      this.#replies.settle(message);
      // Of a `listen`. What is given to one that recovers counts when that is done.
      if (message.recovering === false && isPosition(message.position)) this.#positioned(message.position);
    } else {
      const { gap, position } = markOf(message);
      if (gap !== undefined) this.#inbox.mark({ gap });
      if (position !== undefined) this.#positioned(position);
    }
  }

  /**
   * All that is kept up to there has come.
   * @param {string} position
   */
  #positioned(position) {
    const recovery = this.#recovery;
    if (recovery === null) return; // nobody has asked for it
    if (!this.#isCovered()) {
      recovery.hold(position);
      return;
    }
    recovery.receive(position);
    this.#inbox.mark({ position });
  }

  /**
   * Those that it is subscribed to, and those that it subscribes to again; some perhaps twice.
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
   * To what has ended. null: not now; `ProtocolError`: it is refused for good.
   * @param {Again} again
   * @returns {Promise<Record<string, any>[] | null>}
   */
  async #subscribeOnce({ topics, fields }) {
    const { signal } = this.#ending;
    const { timeoutMs } = this.#options;
    const late = () => this.#late(`no answer within ${timeoutMs} ms`);
    // No later position is received before they are back, so this one is of before they ended. Where the client does not
    // listen any more, what it misses comes when it listens again.
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
      return null; // a later try, or the client's end, is the answer to it
    }
  }

  /** @returns {Promise<Record<string, any> | null>} null: it does not listen, or not now. */
  async #listenOnceMore() {
    if (!this.#listening) return null;
    try {
      return await this.#request(this.#listenBody(), true, { signal: this.#ending.signal });
    } catch {
      return null; // what was not named is told when it listens the next time
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
   * Write commands that nobody answers, all at once.
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
   * A connection that takes more. Without `retry` it has to be the present one, if there is one.
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
   * Send and wait for the reply; with `retry` again and again while that may help and time is left.
   * @param {string} text
   * @param {boolean} retry
   * @param {WaitOptions | undefined} options
   * @param {number} [longerMs] So much longer a reply may take; a refusal is not repeated by then.
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
   * A handler has failed: that ends the client.
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
    return this.#body("listen", this.#recovery === null ? {} : this.#recovery.fields);
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
function notificationOf({ key = null, broadcast, mid, kept }) {
  if (key !== null && typeof key !== "string") throw new Garbage("the endpoint sent a key that is no string");
  if (mid === undefined) return { key, broadcast };
  if (typeof mid !== "string") throw new Garbage("the endpoint sent a mid that is no string");
  return kept === true ? { key, broadcast, mid, kept } : { key, broadcast, mid };
}
