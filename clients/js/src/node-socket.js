/**
 * A WebSocket in Node, built on `node:http` and `node:https`. Node 20 has no WebSocket, and the WebSocket of later
 * versions accepts neither headers nor authorities.
 *
 * Owns: one connection from start to end: handshake, keepalive, close. Must never: know what a message means, connect
 * again, or reveal a token.
 */

import { createHash, randomBytes, randomFillSync } from "node:crypto";
import http from "node:http";
import https from "node:https";

import { Unreachable } from "./errors.js";
import { CLOSE, FrameReader, PING, PONG, PROTOCOL_VIOLATION, TEXT, Violation, closePayload, frame } from "./frames.js";
import { LINES, Together, linesOf } from "./lines.js";
import { shown } from "./options.js";
import { CLOSE_MS_MAX, PROBE_MS } from "./transport.js";
import { Bell, deferred, onAbort } from "./waiting.js";

/** @import { Connect, Socket, SocketOptions } from "./transport.js" */

/** Time limit from the first packet to the endpoint's answer. An endpoint has the same limit for a handshake. */
const HANDSHAKE_MS_MAX = 5_000;

/**
 * At this interval, the client checks whether anything has arrived. If not, it probes. An endpoint pings every 25 s.
 */
const LOOK_MS = 25_000;

/** Maximum number of characters of an endpoint's refusal that an error shows. The refusal is text for people. */
const REFUSAL_BYTES_MAX = 500;

/** RFC 6455 section 1.3. */
const ACCEPT_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Masking keys, drawn from the system in bulk. One call per frame would cost more than the frame. */
const masks = Buffer.alloc(4096);
let masksUsed = masks.length;

function nextMask() {
  if (masksUsed === masks.length) {
    randomFillSync(masks);
    masksUsed = 0;
  }
  masksUsed += 4;
  return masks.subarray(masksUsed - 4, masksUsed);
}

/** @type {Connect} */
export async function connect(url, options) {
  const target = new URL(url);
  const secure = target.protocol === "wss:";
  target.protocol = secure ? "https:" : "http:";
  const key = randomBytes(16).toString("base64");
  /** @type {https.RequestOptions} */
  const request = {
    agent: false, // nobody shares this connection
    headers: {
      Connection: "Upgrade",
      Upgrade: "websocket",
      "Sec-WebSocket-Version": "13",
      "Sec-WebSocket-Key": key,
      ...(options.token === null ? {} : { Authorization: `Bearer ${options.token}` }),
      ...(options.lines ? { "Sec-WebSocket-Protocol": LINES } : {}),
    },
  };
  if (options.ca !== undefined) request.ca = /** @type {any} */ (options.ca);

  const asked = secure ? https.request(target, request) : http.request(target, request);
  /** @type {ReturnType<typeof deferred<NodeSocket>>} */
  const opened = deferred();
  const refuse = (/** @type {string} */ why, /** @type {unknown} */ cause) => opened.reject(new Unreachable(why, { cause }));
  const timer = setTimeout(refuse, HANDSHAKE_MS_MAX, `no handshake within ${HANDSHAKE_MS_MAX} ms`);
  const forget = onAbort(options.signal, () => opened.reject(options.signal.reason));
  asked.on("error", (/** @type {NodeJS.ErrnoException} */ error) => refuse(error.message || error.code || error.name, error));
  let answered = false;
  let isSettled = false; // nobody waits any longer
  asked.on("close", () => {
    if (!answered) refuse("the connection was closed before the handshake was done", undefined);
  });
  asked.on("response", (response) => {
    answered = true;
    refusal(response).then((text) => refuse(text, undefined));
  });
  asked.on("upgrade", (response, stream, head) => {
    const wrong = whatIsWrong(response, key, options.lines);
    if (wrong === null && !isSettled) {
      const isLined = response.headers["sec-websocket-protocol"] === LINES;
      opened.resolve(new NodeSocket(stream, head, url, options, isLined));
    } else {
      stream.destroy(); // it no longer belongs to the request
      refuse(wrong ?? "too late", undefined);
    }
  });
  asked.end();
  try {
    return await opened.promise;
  } catch (error) {
    asked.destroy();
    throw error;
  } finally {
    isSettled = true;
    clearTimeout(timer);
    forget();
  }
}

/**
 * Return why a response is not a valid answer to the handshake, or null if it is valid.
 * @param {http.IncomingMessage} response
 * @param {string} key
 * @param {boolean} lines Whether the client offered lines. The answer can leave them out.
 */
function whatIsWrong(response, key, lines) {
  const { upgrade = "", connection = "", "sec-websocket-protocol": subprotocol } = response.headers;
  const accept = createHash("sha1").update(key + ACCEPT_GUID).digest("base64");
  if (response.statusCode !== 101) return `HTTP ${response.statusCode} with an upgrade`;
  if (upgrade.toLowerCase() !== "websocket") return "upgraded to something other than a WebSocket";
  if (!connection.toLowerCase().split(/\s*,\s*/).includes("upgrade")) return "upgraded without 'Connection: Upgrade'";
  if (response.headers["sec-websocket-accept"] !== accept) return "the wrong Sec-WebSocket-Accept";
  if (response.headers["sec-websocket-extensions"]) return "an extension that the client did not offer";
  if (subprotocol && !(lines && subprotocol === LINES)) return "a subprotocol that the client did not offer";
  return null;
}

/**
 * Return an endpoint's refusal: the status, and the text that it sent instead of an upgrade.
 * @param {http.IncomingMessage} response
 * @returns {Promise<string>}
 */
async function refusal(response) {
  /** @type {Buffer[]} */
  const parts = [];
  let size = 0;
  try {
    for await (const part of response) {
      parts.push(part);
      size += part.length;
      if (size >= REFUSAL_BYTES_MAX) break;
    }
  } catch {
    // The response was cut off. The status and the received part say enough.
  }
  const said = Buffer.concat(parts).toString().slice(0, REFUSAL_BYTES_MAX).trim();
  return `HTTP ${response.statusCode}${said === "" ? "" : `: ${said}`}`;
}

/** @implements {Socket} */
class NodeSocket {
  isOver = false;
  canPause = true;
  heardMs = Date.now();
  /** @type {number | null} */
  closeCode = null;
  why = "";
  #stream;
  #url;
  #options;
  #reader;
  #room = new Bell();
  #open = true; // the client may send messages
  #deaf = false; // ignores everything that still arrives
  #heard = true; // something has arrived since the last check
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #probing;
  /** @type {Buffer | null} */
  #owedPong = null;
  #paused = false;
  #corked = false;
  /** @type {Together | null} */
  #together = null;
  #keepAlive;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #cutting;
  /** @type {ReturnType<typeof deferred<void>>} */
  #gone = deferred();

  /**
   * @param {import("node:stream").Duplex} stream
   * @param {Buffer} head Bytes after the answer to the handshake.
   * @param {string} url
   * @param {SocketOptions} options
   * @param {boolean} isLined
   */
  constructor(stream, head, url, options, isLined) {
    this.#stream = /** @type {import("node:net").Socket} */ (stream);
    this.#url = url;
    this.#options = options;
    if (isLined) this.#together = new Together((text) => this.#send(text));
    this.#reader = new FrameReader(options.messageBytesMax, {
      message: (text) => {
        for (const line of isLined ? linesOf(text) : [text]) {
          if (!this.#deaf) options.onMessage(this, line);
        }
      },
      ping: (payload) => this.#answer(payload),
      pong: () => {},
      close: (code, reason) => this.#closedByPeer(code, reason),
    });
    this.#stream.setNoDelay(true);
    this.#stream.on("data", (chunk) => this.#receive(chunk));
    this.#stream.on("drain", () => this.#writable());
    this.#stream.on("end", () => this.#stream.destroy()); // nobody answers any longer
    this.#stream.on("error", (error) => {
      this.why ||= error.message;
    });
    this.#stream.on("close", () => this.#over());
    this.#keepAlive = setInterval(() => this.#look(), LOOK_MS);
    this.#keepAlive.unref(); // the connection itself keeps the program alive
    // Leave these bytes for later, because the caller must have the socket before it gets a message.
    if (head.length > 0) this.#stream.unshift(head);
  }

  get takesMore() {
    if (!this.#open || this.#stream.writableNeedDrain) return false;
    return this.#together === null || this.#together.size < this.#stream.writableHighWaterMark;
  }

  /** @param {readonly string[]} texts */
  write(texts) {
    if (!this.#open) return; // it is closing, and `onOver` will report it
    if (!this.#corked) {
      // Everything sent in one turn of the event loop leaves in one write.
      this.#corked = true;
      this.#stream.cork();
      process.nextTick(() => {
        this.#corked = false;
        this.#together?.flush();
        this.#stream.uncork();
      });
    }
    for (const text of texts) {
      if (this.#together === null) this.#send(text);
      else this.#together.add(text);
    }
  }

  /** @param {AbortSignal} signal */
  async drained(signal) {
    while (!this.takesMore && !this.isOver) await this.#room.wait(signal);
  }

  pause() {
    if (this.#paused || this.#deaf) return;
    this.#paused = true;
    this.#stream.pause();
  }

  goOn() {
    if (!this.#paused) return;
    this.#paused = false;
    this.#heard = true; // data that arrived meanwhile is about to be read
    this.#stream.resume();
  }

  probe() {
    if (this.#probing !== undefined || this.#paused || !this.#open) return;
    this.#heard = false;
    this.#stream.write(frame(PING, Buffer.alloc(0), nextMask()));
    this.#probing = setTimeout(() => {
      this.#probing = undefined;
      if (this.#heard || this.#paused) return; // while paused it would not read an answer
      this.why ||= `no answer to a ping within ${PROBE_MS / 1000} s`;
      this.abort();
    }, PROBE_MS);
    this.#probing.unref();
  }

  /** @param {string} why */
  giveUp(why) {
    this.#fail(PROTOCOL_VIOLATION, why, "not a message of this protocol");
  }

  abort() {
    this.#deaf = true;
    this.#open = false;
    this.#stream.destroy();
  }

  async end() {
    this.#close(1000, "");
    await this.#gone.promise;
  }

  /** @param {string} text */
  #send(text) {
    this.#stream.write(frame(TEXT, text, nextMask()));
  }

  /** @param {Buffer} chunk */
  #receive(chunk) {
    this.#heard = true;
    this.heardMs = Date.now();
    try {
      this.#reader.push(chunk);
    } catch (error) {
      if (!(error instanceof Violation)) throw error;
      this.#fail(error.closeCode, `the endpoint sent ${error.message}`, error.message);
    }
  }

  #writable() {
    if (this.#owedPong !== null) {
      const payload = this.#owedPong;
      this.#owedPong = null;
      this.#answer(payload);
    }
    this.#room.ring();
  }

  /** @param {Buffer} payload */
  #answer(payload) {
    if (!this.#open) return;
    // A peer that pings and does not read gets only the latest pong (RFC 6455 section 5.5.3), so pongs take no memory.
    if (this.#stream.writableNeedDrain) this.#owedPong = payload;
    else this.#stream.write(frame(PONG, payload, nextMask()));
  }

  #look() {
    if (this.#probing !== undefined) return;
    if (!this.#heard) this.probe();
    this.#heard = false;
  }

  /**
   * @param {number | null} code
   * @param {string} reason
   */
  #closedByPeer(code, reason) {
    this.closeCode = code;
    if (this.#open) this.why ||= `closed by the endpoint, ${code ?? "without a code"}${reason === "" ? "" : `: ${reason}`}`;
    this.#close(code ?? 1000, "");
    this.#stream.end();
  }

  /**
   * @param {number} code
   * @param {string} why
   * @param {string} reason
   */
  #fail(code, why, reason) {
    this.why ||= why;
    this.#deaf = true;
    this.#reader.stop();
    this.#close(code, reason);
    this.#stream.end();
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #close(code, reason) {
    this.goOn(); // otherwise nobody reads the answer
    if (!this.#open) return;
    this.#together?.flush();
    this.#open = false;
    this.#stream.write(frame(CLOSE, closePayload(code, reason), nextMask()));
    this.#cutting = setTimeout(() => this.#stream.destroy(), CLOSE_MS_MAX);
  }

  #over() {
    if (this.isOver) return;
    this.isOver = true;
    this.#open = false;
    clearInterval(this.#keepAlive);
    clearTimeout(this.#probing);
    clearTimeout(this.#cutting);
    this.why = `${shown(this.#url)}: ${this.why || "the connection was cut"}`;
    this.#options.onOver(this);
    this.#room.ring();
    this.#gone.resolve();
  }
}
