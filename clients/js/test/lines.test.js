/** Tests joining commands into one message, and splitting a message into notifications. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client as AnyClient } from "../src/client.js";
import { LINES_BYTES_MAX, Together, linesOf } from "../src/lines.js";
import { Client } from "../src/node.js";
import { connect } from "../src/web-socket.js";
import { within } from "./endpoints.js";
import { LINES, LINES_OFFERED, ScriptedEndpoint, accepted, text } from "./scripted.js";

async function opened(t, endpoints, options = {}) {
  const urls = [endpoints].flat().map(({ url }) => url);
  const client = await Client.open(urls, "c1", { timeoutMs: 20_000, backoffBaseMs: 1, ...options });
  t.after(() => client.close().catch(() => {}));
  return client;
}

async function lined(t, script) {
  const endpoint = await ScriptedEndpoint.start(t, script);
  endpoint.knowsLines = true;
  return [endpoint, await opened(t, endpoint, { lines: true })];
}

async function take(client, count) {
  const taken = [];
  for await (const { broadcast } of client) if (taken.push(broadcast) === count) break;
  return taken;
}

const note = (broadcast) => JSON.stringify({ key: "t", broadcast });
const published = (payload, more = "") =>
  `{"command":"publish","client_id":"c1","topic":"t","payload":${payload}${more}}`;

// -- the text

test("a line feed is between two lines and may end the last; more than 1 MiB is one line", () => {
  for (const [message, lines] of [
    ["", [""]], ["a", ["a"]], ["a\nb", ["a", "b"]], ["a\n", ["a"]], ["\n", [""]], ["\na\n\nb\n", ["", "a", "", "b"]],
  ]) {
    assert.deepEqual(linesOf(message), lines, JSON.stringify(message));
  }
  const most = "é\n".repeat(LINES_BYTES_MAX / 4) + "\n".repeat(LINES_BYTES_MAX / 4);
  assert.equal(linesOf(most).length, LINES_BYTES_MAX / 2);
  assert.deepEqual(linesOf(`${most}a`), [`${most}a`]);
});

/** Return the messages that lines become if they leave at the same moment. */
function made(lines) {
  const messages = [];
  const together = new Together((message) => messages.push(message));
  for (const line of lines) together.add(line);
  together.flush();
  together.flush();
  assert.equal(together.size, 0);
  return messages;
}

test("lines are put together in their order, up to 1 MiB of UTF-8; a longer one is alone", () => {
  const half = "é".repeat(LINES_BYTES_MAX / 4);
  const rest = "x".repeat(LINES_BYTES_MAX / 2 - 1); // plus the line feed
  assert.deepEqual(made([]), []);
  assert.deepEqual(made(["a"]), ["a"]);
  assert.deepEqual(made([half, rest]), [`${half}\n${rest}`]);
  assert.deepEqual(made([half, `${rest}x`]), [half, `${rest}x`]);
  assert.deepEqual(made(["a", "b", half + half, "c", `${half}${half}x`, "d", "e"]), [
    "a\nb", half + half, "c", `${half}${half}x`, "d\ne",
  ]);
});

// -- in Node

test("what is sent at the same moment shares a message, and what comes in one is as if it came alone", async (t) => {
  const held = [];
  const [endpoint, client] = await lined(t, (connection, command) => {
    if ("id" in command) held.push(JSON.stringify({ result: "success", id: command.id }));
    if (held.length === 2) connection.send(text(`${note(1)}\n${held.join("\n")}\n${note(2)}\n`));
  });
  assert.match(endpoint.connection.request, LINES_OFFERED);
  await Promise.all([
    client.publish("t", "a\nb"),
    client.publishMany([["t", 1], ["t", { ü: [] }]], { dedup: false }),
    client.subscribe("t"),
    client.unlisten(),
  ]);
  assert.deepEqual(endpoint.messages, [[
    published('"a\\nb"'),
    published(1, ',"dedup":false'),
    published('{"ü":[]}', ',"dedup":false'),
    '{"command":"subscribe","client_id":"c1","topic":["t"],"id":1}',
    '{"command":"unlisten","client_id":"c1","id":2}',
  ].join("\n")]);
  assert.deepEqual(await take(client, 2), [1, 2]);
  held.length = 0;
  await Promise.all([client.subscribe("t"), client.subscribe("t")]);
  assert.equal(endpoint.messages.length, 2);
});

for (const [what, lines, knowsLines] of [
  ["without the option", undefined, true],
  ["at an endpoint that does not name it", true, false],
]) {
  test(`${what} every command and every notification has a message of its own`, async (t) => {
    const endpoint = await ScriptedEndpoint.start(t);
    endpoint.knowsLines = knowsLines;
    const client = await opened(t, endpoint, { lines });
    assert.equal(LINES_OFFERED.test(endpoint.connection.request), lines === true);
    if (!lines) assert.doesNotMatch(endpoint.connection.request, /protocol/i);
    await Promise.all([client.publishMany([["t", 1], ["t", 2]]), client.publish("t", 3), client.subscribe("t")]);
    const topics = '{"command":"subscribe","client_id":"c1","topic":["t"],"id":1}';
    assert.deepEqual(endpoint.messages, [published(1), published(2), published(3), topics]);
    endpoint.connection.send(text('{"key":"t",\n"broadcast":1}\n'));
    assert.deepEqual(await take(client, 1), [1]);
    endpoint.connection.send(text(`${note(2)}\n${note(3)}`));
    await within(endpoint.connection.closed, "the connection's end");
    assert.equal(endpoint.connections[0].closeCode, 1002);
  });
}

test("each connection speaks as its endpoint does", async (t) => {
  const [first, second] = [await ScriptedEndpoint.start(t), await ScriptedEndpoint.start(t)];
  first.knowsLines = true;
  const client = await opened(t, [first, second], { lines: true });
  for (const endpoint of [first, second]) {
    const count = endpoint.messages.length;
    await Promise.all([client.publish("t", 1), client.publish("t", 2), client.subscribe("t")]);
    assert.equal(endpoint.messages.length - count, endpoint === first ? 1 : 3);
    if (endpoint === first) {
      first.connection.cut();
      await client.subscribe("u");
    }
  }
});

test("publishMany makes one message of each MiB, and one of a longer command", async (t) => {
  const [endpoint, client] = await lined(t);
  const large = "é".repeat(700_000);
  const payloads = [...Array(30_000).keys()].map((number) => `${number} ${"x".repeat(40)}`);
  await client.publishMany([["t", large], ...payloads.map((payload) => ["t", payload])]);
  await client.subscribe("behind them");
  const frames = endpoint.frames.all();
  assert.deepEqual(frames.slice(0, -1).map(({ payload }) => payload), [large, ...payloads]);
  const [alone, ...shared] = endpoint.messages.slice(0, -1);
  assert.equal(JSON.parse(alone).payload, large);
  shared.forEach((message, at) => {
    const bytes = Buffer.byteLength(message);
    assert.ok(bytes <= LINES_BYTES_MAX);
    // There was no room for the first line of the next message.
    if (at + 1 < shared.length) assert.ok(bytes + 1 + shared[at + 1].indexOf("\n") > LINES_BYTES_MAX);
  });
  assert.ok(shared.length > 2);
});

test("all are checked before the first is sent", async (t) => {
  const [endpoint, client] = await lined(t);
  await assert.rejects(client.publishMany([["t", 1], ["", 2]]), { code: "bad_topic" });
  await assert.rejects(client.publishMany([["t", 1], ["t", 2n]]), { code: "bad_json" });
  await client.publishMany([]);
  await client.subscribe("t");
  assert.equal(endpoint.messages.length, 1);
});

test("who does not read holds up a client that speaks in lines, too, and gets everything at last", async (t) => {
  const [endpoint, client] = await lined(t);
  endpoint.connection.socket.pause();
  let count = 0;
  const flood = async () => {
    for (;;) {
      await client.publish("t", "x".repeat(500), { timeoutMs: 500 });
      count += 1;
    }
  };
  await assert.rejects(within(flood(), "held up"), { name: "CommandTimeout", message: /not written/ });
  endpoint.connection.socket.resume();
  await client.subscribe("behind them");
  assert.equal(endpoint.frames.length, count + 1);
  assert.ok(count > 5 * endpoint.messages.length, `${count} in ${endpoint.messages.length}`);
  assert.ok(endpoint.messages.every((message) => message.length < 70_000)); // no more data waits than without lines
});

test("a bad line costs the connection; those before it count, those behind it do not", async (t) => {
  for (const bad of ["", "{not json", "[]"]) {
    const [endpoint, client] = await lined(t);
    endpoint.connection.send(text([note(1), bad, note(2)].join("\n")));
    await within(endpoint.connection.closed, "the connection's end");
    await client.subscribe("t");
    assert.deepEqual([client.reconnects, client.queued, endpoint.connections[0].closeCode], [1, 1, 1002], bad);
  }
});

test("what was sent before close is sent", async (t) => {
  const [endpoint, client] = await lined(t);
  const sent = [client.publish("t", 1), client.publish("t", 2)];
  await client.close();
  await Promise.all(sent);
  assert.deepEqual(endpoint.messages, [`${published(1)}\n${published(2)}`]);
  assert.equal(endpoint.connection.closeCode, 1000);
});

test("an answer with another subprotocol than the one that was offered is refused", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  for (const [lines, extra] of [
    [false, LINES],
    [true, "Sec-WebSocket-Protocol: chat\r\n"],
    [true, "Sec-WebSocket-Protocol: Ingeborg.lines\r\n"],
    [true, LINES + LINES],
  ]) {
    endpoint.handshake = (connection) => connection.send(accepted(connection.request, { extra }));
    await assert.rejects(opened(t, endpoint, { lines }), { name: "ConnectFailed", message: /subprotocol/ }, extra);
    await within(endpoint.connection.closed, "the connection's end");
  }
});

// -- in a page

/** The part of a page's socket that the client uses. The test acts as the endpoint. */
class PageSocket {
  static OPEN = 1;
  /** @type {PageSocket} */
  static latest;
  readyState = 0;
  bufferedAmount = 0;
  protocol = "";
  sent = [];

  constructor(url, ...offered) {
    PageSocket.latest = this;
    this.offered = offered;
  }

  opens(protocol) {
    this.protocol = protocol;
    this.readyState = 1;
    this.onopen();
  }

  says(data) {
    this.onmessage({ data });
  }

  send(message) {
    assert.equal(this.readyState, 1);
    this.bufferedAmount += Buffer.byteLength(message);
    this.sent.push(message);
  }

  close(code) {
    if (this.readyState > 1) return;
    this.readyState = 2;
    setImmediate(() => this.onclose({ code: code ?? 1005, reason: "" }));
  }
}

class PageClient extends AnyClient {
  static connectSocket = connect;
}

/** Return a client in a page, and its socket. */
async function inPage(t, lines, protocol) {
  const before = globalThis.WebSocket;
  globalThis.WebSocket = PageSocket;
  const client = new PageClient("ws://127.0.0.1:9000", "c1", { lines, backoffBaseMs: 60_000, random: () => 1 });
  t.after(async () => {
    await client.close();
    globalThis.WebSocket = before;
  });
  const connecting = client.connect();
  await new Promise(setImmediate);
  const socket = PageSocket.latest;
  assert.deepEqual(socket.offered, lines ? [["ingeborg.lines"]] : []);
  socket.opens(protocol);
  await connecting;
  return [client, socket];
}

test("a page offers lines and speaks in them", async (t) => {
  const [client, socket] = await inPage(t, true, "ingeborg.lines");
  const many = [...Array(40_000).keys()].map((number) => ["t", number]);
  await Promise.all([client.publish("t", "a"), client.publishMany([["t", "b"], ["t", "c"]])]);
  assert.deepEqual(socket.sent.splice(0), [['"a"', '"b"', '"c"'].map((payload) => published(payload)).join("\n")]);
  await client.publish("t", 1);
  await client.publishMany(many);
  assert.deepEqual(socket.sent.shift(), published(1));
  assert.equal(socket.sent.length, Math.ceil((many.length * (published(10_000).length + 1)) / LINES_BYTES_MAX));
  assert.ok(socket.sent.every((message) => message.length <= LINES_BYTES_MAX));
  assert.equal(socket.sent.join("\n"), many.map(([, number]) => published(number)).join("\n"));
  socket.says(`${note(1)}\n${note(2)}\n`);
  assert.deepEqual(await take(client, 2), [1, 2]);
  socket.says(`${note(3)}\n[]\n${note(4)}`);
  assert.deepEqual([client.queued, socket.readyState], [1, 2]);
});

test("a page without lines, or with an answer that does not name them, is as ever", async (t) => {
  for (const lines of [false, true]) {
    const [client, socket] = await inPage(t, lines, "");
    await client.publishMany([["t", 1], ["t", 2]]);
    assert.deepEqual(socket.sent, [published(1), published(2)]);
    socket.says(`${note(1)}\n${note(2)}`);
    assert.deepEqual([client.queued, socket.readyState], [0, 2]);
  }
});

test("what a page has sent before close is sent; what waits to be sent counts as such", async (t) => {
  const [client, socket] = await inPage(t, true, "ingeborg.lines");
  const half = "x".repeat(LINES_BYTES_MAX / 2);
  const large = [client.publish("t", half), client.publish("t", half)];
  const late = client.publish("t", 1, { timeoutMs: 50 });
  assert.equal(socket.sent.length, 1); // the second message waits for the end of this turn
  await Promise.all(large);
  await assert.rejects(late, /not written/);
  assert.deepEqual(socket.sent.splice(0), Array(2).fill(published(`"${half}"`)));
  socket.bufferedAmount = 0;
  await Promise.all([client.publish("t", 2), client.publish("t", 3), client.close()]);
  assert.deepEqual(socket.sent, [`${published(2)}\n${published(3)}`]);
});
