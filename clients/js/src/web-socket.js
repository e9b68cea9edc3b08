/**
 * A connection that uses a browser's `WebSocket`.
 *
 * Owns: one connection from start to end. Must never: know what a message means, connect again, or reveal a token.
 *
 * A page cannot set a header, so the token goes into the query (SPEC section 1.5). A page also cannot see why a
 * handshake was refused, read more slowly, cut a connection immediately, or see pings, which the browser answers.
 */

import { Unreachable } from "./errors.js";
import { LINES, Together, linesOf } from "./lines.js";
import { shown } from "./options.js";
import { CLOSE_MS_MAX, PROBE_MS } from "./transport.js";
import { Bell, deferred, onAbort, sleep } from "./waiting.js";

/** @import { Connect, Socket, SocketOptions } from "./transport.js" */

/** If more than this many bytes wait to be sent, further sends wait. */
const BUFFERED_BYTES_MAX = 1 << 20;

/** Interval of checks whether these bytes have been sent, in milliseconds. A browser has no event for this. */
const LOOK_MS = 20;

/** @type {Connect} */
export async function connect(url, options) {
  if (typeof globalThis.WebSocket !== "function") {
    throw new TypeError("there is no WebSocket here: in Node import `ingeborg-client`, or its src/node.js");
  }
  if (options.ca !== undefined) throw new TypeError("ca: a browser trusts its own authorities, and no others");
  const target = new URL(url);
  if (options.token !== null) target.searchParams.set("access_token", options.token);
  options.signal.throwIfAborted();
  // A browser that offers a subprotocol refuses an endpoint whose answer does not name one.
  const ws = options.lines ? new WebSocket(target, [LINES]) : new WebSocket(target);
  const socket = new BrowserSocket(ws, url, options);
  await socket.opened;
  return socket;
}

/** @implements {Socket} */
class BrowserSocket {
  isOver = false;
  canPause = false;
  heardMs = Date.now();
  /** @type {number | null} */
  closeCode = null;
  why = "";
  #ws;
  #url;
  #options;
  #room = new Bell();
  #deaf = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #probing;
  /** @type {Together | null} */
  #together = null;
  /** @type {ReturnType<typeof deferred<void>>} */
  #opened = deferred();
  /** @type {ReturnType<typeof deferred<void>>} */
  #gone = deferred();

  /**
   * @param {WebSocket} ws
   * @param {string} url
   * @param {SocketOptions} options
   */
  constructor(ws, url, options) {
    this.#ws = ws;
    this.#url = url;
    this.#options = options;
    this.opened = this.#opened.promise;
    let isOpen = false;
    const forget = onAbort(options.signal, () => {
      this.#opened.reject(options.signal.reason);
      this.abort();
    });
    ws.binaryType = "arraybuffer";
    ws.onopen = () => {
      isOpen = true;
      if (options.lines && ws.protocol === LINES) this.#together = new Together((text) => ws.send(text));
      forget();
      this.#opened.resolve();
    };
    ws.onmessage = (event) => this.#receive(event.data);
    ws.onclose = (event) => {
      forget();
      if (isOpen) {
        // 1005 and 1006 come from the browser itself: the endpoint gave no code.
        this.#over(event.code === 1005 || event.code === 1006 ? null : event.code, event.reason);
      } else {
        this.#opened.reject(new Unreachable("no connection, or refused; a browser does not say why"));
      }
    };
  }

  get takesMore() {
    const waiting = this.#ws.bufferedAmount + (this.#together?.size ?? 0);
    return this.#ws.readyState === WebSocket.OPEN && waiting < BUFFERED_BYTES_MAX;
  }

  /** @param {readonly string[]} texts */
  write(texts) {
    const together = this.#together;
    if (together === null) {
      for (const text of texts) this.#ws.send(text);
      return;
    }
    // Messages that the program sends without waiting in between leave together.
    if (together.size === 0) queueMicrotask(() => together.flush());
    for (const text of texts) together.add(text);
  }

  /** @param {AbortSignal} signal */
  async drained(signal) {
    while (!this.takesMore && !this.isOver) {
      if (this.#ws.readyState === WebSocket.OPEN) await sleep(LOOK_MS, signal);
      else await this.#room.wait(signal);
    }
  }

  pause() {}

  goOn() {}

  /** A page cannot ping. But the waiting command is also a probe, because a live endpoint answers it late. */
  probe() {
    if (this.#probing !== undefined || this.isOver) return;
    const { heardMs } = this;
    this.#probing = setTimeout(() => {
      this.#probing = undefined;
      if (this.heardMs !== heardMs) return;
      this.why ||= `nothing arrived within ${PROBE_MS / 1000} s after a command timed out`;
      this.abort();
    }, PROBE_MS);
  }

  /** @param {string} why */
  giveUp(why) {
    this.why ||= why;
    this.#deaf = true;
    this.#close(); // a page cannot send the close codes for this
    this.#cutSoon();
  }

  abort() {
    this.#deaf = true;
    this.#close();
    this.#over(null, "");
  }

  async end() {
    this.#close(1000);
    this.#cutSoon();
    await this.#gone.promise;
  }

  /** @param {number} [code] */
  #close(code) {
    this.#together?.flush(); // these messages were sent before the close
    this.#ws.close(code);
  }

  #cutSoon() {
    const timer = setTimeout(() => this.abort(), CLOSE_MS_MAX);
    this.#gone.promise.then(() => clearTimeout(timer));
  }

  /** @param {unknown} data */
  #receive(data) {
    if (this.#deaf) return;
    this.heardMs = Date.now();
    if (typeof data !== "string") return this.giveUp("the endpoint sent a binary message");
    if (data.length > this.#options.messageBytesMax) return this.giveUp("the endpoint sent an oversized message");
    for (const line of this.#together === null ? [data] : linesOf(data)) {
      if (!this.#deaf) this.#options.onMessage(this, line);
    }
  }

  /**
   * @param {number | null} code
   * @param {string} reason
   */
  #over(code, reason) {
    if (this.isOver) return;
    this.isOver = true;
    clearTimeout(this.#probing);
    this.closeCode = code;
    if (code !== null) this.heardMs = Date.now();
    const said = code === null ? "the connection was cut" : `closed by the endpoint, ${code}${reason ? `: ${reason}` : ""}`;
    this.why = `${shown(this.#url)}: ${this.why || said}`;
    this.#options.onOver(this);
    this.#room.ring();
    this.#gone.resolve();
  }
}
