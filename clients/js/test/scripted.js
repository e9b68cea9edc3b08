/**
 * A scripted endpoint: bare bytes over TCP, and a script per command. It shares no code with the client, and knows no
 * rules of the broker; other tests check the client against real endpoints.
 */

import { createHash } from "node:crypto";
import { createServer } from "node:net";

import { within } from "./endpoints.js";

/** Return a line of an answer to a handshake. */
export const LINES = "Sec-WebSocket-Protocol: ingeborg.lines\r\n";
export const LINES_OFFERED = /^sec-websocket-protocol: ingeborg\.lines$/im;

/** Return a server's frame, neither masked nor checked. */
export function serverFrame(first, payload = Buffer.alloc(0)) {
  const bytes = Buffer.from(payload);
  const head =
    bytes.length < 126
      ? Buffer.from([first, bytes.length])
      : bytes.length < 65536
        ? Buffer.from([first, 126, bytes.length >> 8, bytes.length & 255])
        : Buffer.concat([Buffer.from([first, 127]), bigEndian(bytes.length)]);
  return Buffer.concat([head, bytes]);
}

function bigEndian(number) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(number));
  return bytes;
}

export function text(message) {
  return serverFrame(0x81, typeof message === "string" ? message : JSON.stringify(message));
}

export function closeFrame(code, reason = "") {
  return serverFrame(0x88, Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)]));
}

/** The default script: success for everything that expects an answer. */
export function succeed(connection, command) {
  if ("id" in command) connection.reply(command, { result: "success" });
}

class Connection {
  #bytes = Buffer.alloc(0);
  request = null;
  isLined = false;
  closeCode = null;
  pings = [];
  pongs = [];

  constructor(endpoint, socket) {
    this.endpoint = endpoint;
    this.socket = socket;
    this.closed = new Promise((resolve) => socket.once("close", resolve));
    socket.on("error", () => {}); // many scripts cause an error
    socket.on("data", (chunk) => this.#receive(chunk));
  }

  #receive(chunk) {
    this.#bytes = Buffer.concat([this.#bytes, chunk]);
    if (this.request === null) {
      const end = this.#bytes.indexOf("\r\n\r\n");
      if (end < 0) return;
      this.request = this.#bytes.subarray(0, end).toString();
      this.#bytes = this.#bytes.subarray(end + 4);
      this.endpoint.handshake(this);
    }
    for (let frame; (frame = this.#next()) !== null; ) this.#frame(...frame);
  }

  /** Return the first whole frame: opcode, payload, and whether it had the form of a client's frame. */
  #next() {
    const bytes = this.#bytes;
    if (bytes.length < 6) return null;
    const short = bytes[1] & 0x7f;
    const start = short < 126 ? 6 : short === 126 ? 8 : 14;
    if (bytes.length < start) return null;
    const size = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
    if (bytes.length < start + size) return null;
    if ((bytes[0] & 0xf0) !== 0x80 || !(bytes[1] & 0x80)) throw new Error("not a whole, masked frame");
    const mask = bytes.subarray(start - 4, start);
    const payload = Buffer.from(bytes.subarray(start, start + size));
    for (let at = 0; at < size; at++) payload[at] ^= mask[at & 3];
    this.#bytes = bytes.subarray(start + size);
    return [bytes[0] & 0x0f, payload];
  }

  #frame(opcode, payload) {
    if (opcode === 0x9) this.pings.push(payload.toString());
    else if (opcode === 0xa) this.endpoint.pongs.put(payload.toString());
    else if (opcode === 0x8) {
      this.closeCode = payload.length ? payload.readUInt16BE(0) : null;
      if (!this.endpoint.ignoresClose) this.socket.end(serverFrame(0x88, payload));
    } else {
      const message = payload.toString();
      this.endpoint.messages.push(message);
      for (const line of this.isLined ? message.split("\n") : [message]) {
        const command = JSON.parse(line);
        this.endpoint.frames.put(command);
        this.endpoint.script(this, command);
      }
    }
  }

  send(bytes) {
    this.socket.write(bytes);
  }

  reply(command, fields) {
    this.send(text({ ...fields, id: command.id }));
  }

  notify(key, broadcast) {
    this.send(text({ key, broadcast }));
  }

  /** Break the connection, as a killed process does. */
  cut() {
    this.socket.resetAndDestroy();
  }
}

/** Values that a test can wait for. */
class Values {
  #values = [];
  #waiting = [];

  put(value) {
    if (this.#waiting.length) this.#waiting.shift()(value);
    else this.#values.push(value);
  }

  get length() {
    return this.#values.length;
  }

  all() {
    return this.#values.splice(0);
  }

  next() {
    if (this.#values.length) return Promise.resolve(this.#values.shift());
    return within(new Promise((resolve) => this.#waiting.push(resolve)), "the scripted endpoint's next value");
  }
}

export class ScriptedEndpoint {
  script = succeed;
  ignoresClose = false;
  knowsLines = false;
  connections = [];
  frames = new Values();
  messages = []; // as they arrived; with lines, each message has several frames
  pongs = new Values();

  static async start(t, script = succeed) {
    const endpoint = new ScriptedEndpoint();
    endpoint.script = script;
    endpoint.server = createServer((socket) => endpoint.connections.push(new Connection(endpoint, socket)));
    await new Promise((resolve) => endpoint.server.listen(0, "127.0.0.1", resolve));
    endpoint.url = `ws://127.0.0.1:${endpoint.server.address().port}/`;
    t.after(() => {
      endpoint.server.close();
      for (const connection of endpoint.connections) connection.socket.destroy();
    });
    return endpoint;
  }

  get connection() {
    return this.connections.at(-1);
  }

  /** The answer to a handshake. A test can replace it. */
  handshake(connection) {
    connection.isLined = this.knowsLines && LINES_OFFERED.test(connection.request);
    connection.send(accepted(connection.request, { extra: connection.isLined ? LINES : "" }));
  }

  /** Return the next frame with this command. Other frames are skipped. */
  async next(command) {
    for (;;) {
      const frame = await this.frames.next();
      if (frame.command === command) return frame;
    }
  }
}

export function accepted(request, { accept, extra = "", status = "101 Switching Protocols" } = {}) {
  const key = /^sec-websocket-key: (.*)$/im.exec(request)[1];
  accept ??= createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  return `HTTP/1.1 ${status}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n${extra}\r\n`;
}

/** An address where nobody listens: port 9 (discard) of the loopback, which only root can bind. */
export const NOBODY = "ws://127.0.0.1:9/";
