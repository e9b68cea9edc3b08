/** The client against real endpoints: processes that are killed, stopped and started again; tokens; TLS. */

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { createConnection, createServer } from "node:net";
import path from "node:path";
import { test } from "node:test";

import { FrameReader } from "../src/frames.js";
import { Client } from "../src/node.js";
import { Endpoint, directory, ingeborg, skip, within } from "./endpoints.js";

const real = { skip };

async function opened(t, endpoints, clientId, options = {}) {
  const urls = [endpoints].flat().map(({ url }) => url);
  const client = await Client.open(urls, clientId, { timeoutMs: 20_000, backoffBaseMs: 20, backoffMaxMs: 200, ...options });
  t.after(() => client.close().catch(() => {}));
  return client;
}

async function next(client) {
  const notes = client.notifications();
  const { value } = await within(notes.next(), "a notification");
  await notes.return();
  return value;
}

/** Wait until a client has connected again. */
function reconnection() {
  let told;
  let first = true;
  const promise = new Promise((resolve) => (told = resolve));
  const onConnected = (url) => {
    if (!first) told(url);
    first = false;
  };
  return [within(promise, "connected again"), onConnected];
}

const everything = (options) => async (t) => {
  const endpoint = await Endpoint.start(t);
  const ann = await opened(t, endpoint, "ann", { listen: true, ...options });
  const radio = await opened(t, endpoint, 7, options);

  await ann.subscribe(["Höhe ☃", "Nena - 99 Luftballons"]);
  assert.equal(await radio.publish("Höhe ☃", { b: [1.5, null, "é😀"], a: 1 }, { ack: true, timestamp: Date.now() }), false);
  assert.deepEqual(await next(ann), { key: "Höhe ☃", broadcast: { a: 1, b: [1.5, null, "é😀"] }, skipped: 0 });
  assert.equal(await radio.publish("Höhe ☃", { a: 1, b: [1.5, null, "é😀"] }, { ack: true }), true);
  assert.equal(await radio.publish("Höhe ☃", { a: 1, b: [1.5, null, "é😀"] }, { ack: true, dedup: false }), false);
  assert.deepEqual((await next(ann)).broadcast, { a: 1, b: [1.5, null, "é😀"] });
  await radio.publish("Nena - 99 Luftballons", "no ack");
  assert.deepEqual(await next(ann), { key: "Nena - 99 Luftballons", broadcast: "no ack", skipped: 0 });
  assert.equal(await radio.broadcast("to all", { ack: true }), false);
  assert.deepEqual(await next(ann), { key: null, broadcast: "to all", skipped: 0 });
  await radio.publishMany([1, 2, 3].map((number) => ["Höhe ☃", number]));
  for (const number of [1, 2, 3]) assert.equal((await next(ann)).broadcast, number);

  // The most extreme values that JSON and an endpoint accept.
  const edges = [1e20, -(2 ** 63), 2 ** 64, 5e-324, -0, NaN, "\\ud800", { __proto__: null, "": [] }];
  const deep = JSON.parse("[".repeat(250) + "]".repeat(250));
  await radio.publish("Höhe ☃", edges, { ack: true });
  assert.deepEqual((await next(ann)).broadcast, [1e20, -(2 ** 63), 2 ** 64, 5e-324, 0, null, "\\ud800", { "": [] }]);
  await radio.publish("Höhe ☃", deep, { ack: true });
  assert.deepEqual((await next(ann)).broadcast, deep);

  await ann.unsubscribe("Höhe ☃");
  const topics = [];
  for await (const { topic } of ann.subscriptions()) topics.push(topic);
  assert.deepEqual(topics, ["Nena - 99 Luftballons"]);
  await ann.unlisten();
  await radio.publish("Nena - 99 Luftballons", "to nobody", { ack: true });
  await ann.subscribe("behind it");
  assert.equal(ann.queued, 0);
  await assert.rejects(radio.publish("t", "x".repeat((1 << 20) + 1), { ack: true }), { code: "too_large", next: "fix" });
};

test("one endpoint: what all commands do", real, everything({}));
test("one endpoint: what all commands do in lines", real, everything({ lines: true }));

test("a subscription until disconnect ends when nobody listens, and is there again when its client is", real, async (t) => {
  const endpoint = await Endpoint.start(t, { options: ["--grace", "1"] });
  const told = [];
  const ann = await opened(t, endpoint, "ann", { listen: true, onEnded: (...ended) => told.push(ended) });
  const radio = await opened(t, endpoint, "radio");
  const topics = async () => {
    const found = [];
    for await (const { topic } of ann.subscriptions()) found.push(topic);
    return found.sort();
  };
  const becomes = async (...expected) => {
    while ((await topics()).join() !== expected.join()) await new Promise((resolve) => setTimeout(resolve, 50));
  };
  await ann.subscribe(["a", "b"], { until: "disconnect", filter: { said: [{ exists: true }] } });
  await ann.subscribe("stays");
  await ann.subscribe("short", { ttlS: 1, filter: { price: [1] } });
  await radio.publish("a", { said: "first" }, { ack: true });
  assert.deepEqual(await next(ann), { key: "a", broadcast: { said: "first" }, skipped: 0 });
  await ann.unsubscribe("b");
  await ann.unlisten();
  await within(becomes("stays"), "the subscriptions' end");
  await ann.listen();
  await within(becomes("a", "stays"), "the subscription that is asked for again");
  assert.deepEqual(told, [[[{ topic: "short", filter: { price: [1] } }], 1]]);
  await radio.publish("a", "matches no filter", { ack: true });
  await radio.publish("a", { said: "second" }, { ack: true });
  assert.deepEqual(await next(ann), { key: "a", broadcast: { said: "second" }, skipped: 0 });
});

test("a client is sent what its filters match, and they are there again when it is", real, async (t) => {
  const endpoint = await Endpoint.start(t);
  const ann = await opened(t, endpoint, "ann", { listen: true });
  const radio = await opened(t, endpoint, "radio");
  const offer = (fields) => radio.publish("offers", fields, { ack: true, dedup: "retry" });
  const listed = async (client) => {
    const found = [];
    for await (const one of client.subscriptions()) found.push(one);
    return found;
  };
  const pizza = { food: ["pizza"], discount: [{ numeric: [">=", 30] }] };
  await ann.subscribe("offers", { filter: pizza });
  await offer({ food: "pizza", discount: 29 });
  await offer({ food: "pizza", discount: 30 });
  assert.deepEqual((await next(ann)).broadcast, { food: "pizza", discount: 30 });
  await ann.subscribe("offers", { filter: { food: ["pasta"] } });
  await ann.close();

  const again = await opened(t, endpoint, "ann", { listen: true });
  await offer({ food: "salad" });
  await offer({ food: "pasta" });
  assert.deepEqual((await next(again)).broadcast, { food: "pasta" });
  assert.deepEqual(await listed(again), [{ topic: "offers", filter: pizza }, { topic: "offers", filter: { food: ["pasta"] } }]);
  const subscribers = [];
  for await (const one of again.subscribers("offers")) subscribers.push(one);
  assert.deepEqual(subscribers, [{ clientId: "ann", online: true, filtered: true }]);
  await again.unsubscribe("offers", { filter: pizza });
  await again.subscribe("offers", { filter: { food: ["salad"] }, replace: true });
  assert.deepEqual(await listed(again), [{ topic: "offers", filter: { food: ["salad"] } }]);
  await assert.rejects(again.subscribe("offers", { filter: { food: [{ like: 1 }] } }), {
    code: "bad_filter", next: "fix", info: /^food\[0\]\.like/,
  });
});

/** Counts the messages, and their lines, that the endpoint sends to a client that connects through this relay. */
async function overheard(t, endpoint) {
  const heard = { messages: 0, lines: 0 };
  const relay = createServer((socket) => {
    const peer = createConnection(new URL(endpoint.url).port, "127.0.0.1");
    const reader = new FrameReader(1 << 30, {
      message: (text) => {
        heard.messages += 1;
        heard.lines += text.split("\n").length;
      },
      ping: () => {},
      close: () => {},
    });
    let head = ""; // the head of the answer to the handshake
    peer.on("data", (chunk) => {
      if (!head.includes("\r\n\r\n")) {
        head += chunk.toString("latin1");
        chunk = Buffer.from(head.split("\r\n\r\n").slice(1).join("\r\n\r\n"), "latin1");
      }
      reader.push(chunk);
    });
    for (const end of [socket, peer]) end.on("error", () => {});
    socket.pipe(peer).pipe(socket);
    t.after(() => socket.destroy());
    t.after(() => peer.destroy());
  });
  await new Promise((resolve) => relay.listen(0, "127.0.0.1", resolve));
  t.after(() => relay.close());
  return [{ url: `ws://127.0.0.1:${relay.address().port}/` }, heard];
}

for (const lines of [false, true]) {
  test(`many at once, ${lines ? "in lines, share messages each way" : "without lines, do not"}`, real, async (t) => {
    const endpoint = await Endpoint.start(t);
    const [relay, heard] = await overheard(t, endpoint);
    const ann = await opened(t, relay, "ann", { listen: true, lines });
    await ann.subscribe("news");
    const before = heard.messages;
    const count = 9_000;
    await ann.publishMany(Array.from({ length: count }, (_, number) => ["news", [number, "é"]]));
    for (let number = 0; number < count; number++) {
      assert.deepEqual(await next(ann), { key: "news", broadcast: [number, "é"], skipped: 0 });
    }
    const acks = Array.from({ length: 100 }, (_, number) => ann.publish("elsewhere", number >> 1, { ack: true }));
    assert.deepEqual(await Promise.all(acks), acks.map((_, number) => number % 2 === 1));
    assert.deepEqual([ann.reconnects, ann.dropped, ann.errors], [0, 0, []]);
    if (lines) assert.ok(heard.messages - before < count / 2, `${heard.messages}`);
    else assert.equal(heard.messages, heard.lines);
    assert.equal(heard.lines, 2 + count + 100);
  });
}

test("twenty thousand topics, and a page longer than a command may be", real, async (t) => {
  const endpoint = await Endpoint.start(t, { env: { INGEBORG_MAX_FRAME_BYTES: "100000" } });
  const client = await opened(t, endpoint, "ann", { maxFrameBytes: 100_000 });
  const topics = Array.from({ length: 20_000 }, (_, number) => `${number} ${"é".repeat(number % 50)}`);
  await client.subscribe(topics, { timeoutMs: 60_000 });
  const found = [];
  for await (const { topic } of client.subscriptions({ limit: 10_000, timeoutMs: 60_000 })) found.push(topic);
  assert.deepEqual(found.sort(), topics.sort());
  assert.equal(client.reconnects, 0);
});

test("an endpoint killed and started again: connected, listening and subscribed", real, async (t) => {
  const endpoint = await Endpoint.start(t);
  const [again, onConnected] = reconnection();
  const ann = await opened(t, endpoint, "ann", { listen: true, onConnected });
  await ann.subscribe("news");
  await endpoint.kill();
  const waiting = ann.subscribe("sports"); // repeated on the next connection
  await endpoint.start();
  await again;
  await waiting;
  const radio = await opened(t, endpoint, "radio");
  await radio.publish("news", "after the crash", { ack: true });
  await radio.publish("sports", "too", { ack: true });
  assert.deepEqual([(await next(ann)).broadcast, (await next(ann)).broadcast], ["after the crash", "too"]);
  assert.equal(ann.reconnects, 1);
});

test("two endpoints, one killed, then the other stopped in order", real, async (t) => {
  const store = directory(t);
  const one = await Endpoint.start(t, { name: "one", store });
  const two = await Endpoint.start(t, { name: "two", store });
  const [again, onConnected] = reconnection();
  const lost = [];
  const ann = await opened(t, [one, two], "ann", { listen: true, onConnected, onLost: (error) => lost.push(error.closeCode) });
  const radio = await opened(t, two, "radio");
  await ann.subscribe("news");
  await radio.publish("news", 1, { ack: true });
  assert.equal((await next(ann)).broadcast, 1);
  await one.kill();
  assert.equal(await again, two.url);
  await radio.publish("news", 2, { ack: true });
  assert.equal((await next(ann)).broadcast, 2);
  await one.start();
  await two.stop();
  await ann.subscribe("sports");
  assert.equal(ann.url, one.url);
  assert.deepEqual(lost, [null, 1001]);
});

test("whoever listens elsewhere replaces: 4001, and no way back", real, async (t) => {
  const endpoint = await Endpoint.start(t);
  const first = await opened(t, endpoint, "ann", { listen: true });
  const second = await opened(t, endpoint, "ann", { listen: true });
  const error = await within(first.closed, "the first one's end");
  assert.deepEqual([error.name, error.closeCode, error.next], ["ClosedForGood", 4001, "give_up"]);
  await assert.rejects(next(first), error);
  await second.subscribe("t");
  await second.publish("t", "still here");
  assert.equal((await next(second)).broadcast, "still here");
});

const HISTORY = ["--history", "memory", "--history-size", "3"];

/** Wait until the client's position covers everything that has arrived. */
async function covered(client, publisher) {
  const before = client.position;
  const unheard = { ack: true, dedup: false, keepS: 60 };
  // A position arrives about every second while messages arrive, and otherwise every 20 s.
  for (let tries = 0; client.position === before && tries < 300; tries++) {
    await publisher.publish("nobody hears this", tries, unheard);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.notEqual(client.position, before, "a position after each of the first messages");
}

test("what a client missed comes when it is back, once, and what is lacking is told", real, async (t) => {
  const endpoint = await Endpoint.start(t, { options: HISTORY });
  const radio = await opened(t, endpoint, "radio");
  const got = [];
  let wake = () => {};
  const until = async (...values) => {
    const wanted = JSON.stringify(values);
    while (!got.some((value) => JSON.stringify(value) === wanted)) {
      await within(new Promise((resolve) => (wake = resolve)), `${wanted} among ${JSON.stringify(got)}`);
    }
  };
  const put = (...values) => (got.push(values), wake());
  const listening = {
    listen: true,
    onNotification: (key, broadcast, { kept = false }) => put(key, broadcast, kept),
    onGap: ({ topics }) => put("gap", topics),
  };
  const ann = await opened(t, endpoint, "ann", { ...listening, recover: true });
  await ann.subscribe(["few", "many"]);
  await radio.publish("few", "live", { ack: true, keepS: 60 });
  await until("few", "live", false);
  await covered(ann, radio);
  await ann.close();
  for (let number = 1; number <= 2; number++) await radio.publish("few", number, { ack: true, keepS: 60 });
  await radio.publish("few", "not kept", { ack: true });
  for (let number = 1; number <= 5; number++) await radio.publish("many", number, { ack: true, keepS: 60 });
  const again = await opened(t, endpoint, "ann", { ...listening, recover: ann.position });
  await until("few", 2, true);
  await until("many", 5, true);
  // the client's own messages do not arrive again; another client object had received "live"
  await again.subscribe("few", { last: 3 });
  await radio.publish("few", "live again", { ack: true, keepS: 60 });
  await until("few", "live again", false);
  assert.deepEqual(got.slice(0, 2), [["few", "live", false], ["gap", ["many"]]]);
  const of = (topic) => got.slice(2).filter(([key]) => key === topic).map(([, ...rest]) => rest);
  assert.deepEqual(of("few").filter(([said]) => said !== "live"), [[1, true], [2, true], ["live again", false]]);
  assert.equal(of("few").length, 4);
  assert.deepEqual(of("many"), [[3, true], [4, true], [5, true]]);
});

test("the kept messages of a topic are read in pages, and come with a subscribe", real, async (t) => {
  const endpoint = await Endpoint.start(t, { options: HISTORY });
  const ann = await opened(t, endpoint, "ann", { listen: true });
  for (let number = 1; number <= 4; number++) await ann.publish("t", { number }, { ack: true, keepS: 60 });
  const first = await ann.history("t", { last: 3 });
  assert.deepEqual(first.publications.map(({ broadcast }) => broadcast.number), [2, 3, 4]);
  const rest = await ann.history("t", { since: first.publications[0].mid });
  assert.deepEqual(rest.publications.map(({ broadcast }) => broadcast.number), [3, 4]);
  assert.deepEqual([rest.more, rest.recovered, rest.mid], [false, true, rest.publications[1].mid]);
  assert.deepEqual((await ann.history("t", { filter: { number: [3] } })).publications.length, 1);
  await ann.subscribe("t", { last: 2 });
  assert.equal(ann.queued, 2); // the messages arrive before the reply
  assert.deepEqual(await next(ann), { key: "t", broadcast: { number: 3 }, mid: rest.publications[0].mid, kept: true, skipped: 0 });
});

test("an endpoint that keeps nothing refuses what asks for it", real, async (t) => {
  const endpoint = await Endpoint.start(t);
  await assert.rejects(opened(t, endpoint, "ann", { listen: true, recover: true }), { code: "bad_state", next: "fix" });
  const bob = await opened(t, endpoint, "bob");
  await assert.rejects(bob.publish("t", 1, { ack: true, keepS: 60 }), { code: "bad_state" });
});

/** A JWT for ann, in an issuer's form (SPEC section 1.5). */
function token(keys, lifetimeS, ingeborg) {
  const [{ k, kid }] = JSON.parse(readFileSync(keys, "utf8")).keys;
  const parts = [{ alg: "HS256", kid }, { sub: "ann", exp: Math.floor(Date.now() / 1000) + lifetimeS, ingeborg }];
  const signed = parts.map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
  return `${signed}.${createHmac("sha256", Buffer.from(k, "base64url")).update(signed).digest("base64url")}`;
}

test("tokens: refused, accepted, for another client, and expired with a fresh one at hand", real, async (t) => {
  const keys = path.join(directory(t), "keys.json");
  await ingeborg("token", keys, "--new-keys");
  const endpoint = await Endpoint.start(t, { options: ["--auth-keys", keys] });
  const make = (lifetime) => token(keys, lifetime, { subscribe: [""], publish: ["mine"] });
  await assert.rejects(Client.open(endpoint.url, "ann"), { name: "ConnectFailed", message: /HTTP 401/ });
  await assert.rejects(Client.open(endpoint.url, "ann", { token: "a.b.c" }), { message: /HTTP 401/ });

  // Endpoints allow ten seconds of leeway: the first token has five seconds left.
  const lifetimes = [-5];
  const lost = [];
  const [again, onConnected] = reconnection();
  const ann = await opened(t, endpoint, "ann", {
    listen: true,
    token: async () => make(lifetimes.shift() ?? 600),
    onConnected,
    onLost: (error) => lost.push(error.closeCode),
  });
  await again;
  assert.deepEqual(lost, [4004]);
  await ann.subscribe("mine");
  await ann.publish("mine", "with the fresh one", { ack: true });
  assert.equal((await next(ann)).broadcast, "with the fresh one");
  await assert.rejects(ann.publish("not mine", 1, { ack: true }), { code: "forbidden", next: "fix" });
  const bob = await opened(t, endpoint, "bob", { token: make(600) });
  await assert.rejects(bob.subscribe("t"), { code: "unauthorized" });
});

test("TLS: with the authority, and not without it", { skip: skip || (process.env.INGEBORG_TLS ? false : "no INGEBORG_TLS") }, async (t) => {
  const file = (name) => path.join(process.env.INGEBORG_TLS, name);
  const endpoint = await Endpoint.start(t, {
    options: ["--tls-cert", file("chain.pem"), "--tls-key", file("key.pem")],
  });
  assert.match(endpoint.url, /^wss:/);
  const ann = await opened(t, endpoint, "ann", { listen: true, ca: readFileSync(file("authority.pem")) });
  await ann.subscribe("t");
  await ann.publish("t", "x".repeat(100_000));
  assert.equal((await next(ann)).broadcast.length, 100_000);
  await assert.rejects(Client.open(endpoint.url, "bob"), { name: "ConnectFailed", message: /certificate/ });
  await assert.rejects(Client.open(endpoint.url.replace("wss", "ws"), "bob"), { name: "ConnectFailed" });
});
