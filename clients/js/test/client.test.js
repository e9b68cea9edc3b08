/** Tests the client on real sockets with scripted endpoints, some of which are hostile. */

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { test } from "node:test";

import * as browser from "../src/index.js";
import { Client, ClosedForGood, CommandTimeout, ConnectFailed, ConnectionLost, Unreachable } from "../src/node.js";
import { deferred } from "../src/waiting.js";
import { within } from "./endpoints.js";
import { NOBODY, ScriptedEndpoint, accepted, closeFrame, serverFrame, succeed, text } from "./scripted.js";

/** Return a client that the test closes at its end. */
function clientOf(t, endpoints, options = {}) {
  const urls = [endpoints].flat().map((endpoint) => endpoint.url ?? endpoint);
  const client = new Client(urls, options.clientId ?? "c1", { timeoutMs: 20_000, backoffBaseMs: 1, ...options });
  t.after(() => client.close().catch(() => {}));
  return client;
}

async function opened(t, endpoints, options) {
  const client = clientOf(t, endpoints, options);
  await client.connect();
  return client;
}

/** Return the outcome of a promise: its value, or the error of its rejection. */
const outcome = (promise) => promise.then((value) => value, (error) => error);

async function take(client, count) {
  const taken = [];
  for await (const { key, broadcast } of client) if (taken.push([key, broadcast]) === count) break;
  return taken;
}

// -- commands and replies

test("writes the frames of the specification", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint, { clientId: 7 });
  await client.listen();
  await client.subscribe("a topic");
  await client.unsubscribe(["a", "b"]);
  await client.publish("t", { k: [1, null] }, { timestamp: 12 });
  await client.publish("t", "x", { ack: true, dedup: false });
  await client.publishMany([["t", 1], ["ü", "é"]], { dedup: false });
  await client.broadcast("all");
  await client.unlisten();
  const frames = endpoint.frames.all();
  const ids = frames.map(({ id }) => id).filter((id) => id !== undefined);
  assert.equal(new Set(ids).size, 5);
  assert.deepEqual(frames.map(({ id: _, ...rest }) => rest), [
    { command: "listen", client_id: 7 },
    { command: "subscribe", client_id: 7, topic: ["a topic"] },
    { command: "unsubscribe", client_id: 7, topic: ["a", "b"] },
    { command: "publish", client_id: 7, topic: "t", payload: { k: [1, null] }, timestamp: 12 },
    { command: "publish", client_id: 7, topic: "t", payload: "x", ack: true, dedup: false },
    { command: "publish", client_id: 7, topic: "t", payload: 1, dedup: false },
    { command: "publish", client_id: 7, topic: "ü", payload: "é", dedup: false },
    { command: "broadcast", client_id: 7, payload: "all" },
    { command: "unlisten", client_id: 7 },
  ]);
});

test("a publish has the key that it is given, or one that is like no other", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const [client, other] = [await opened(t, endpoint), await opened(t, endpoint)];
  const duplicates = [
    await client.publish("t", "paid", { ack: true, dedup: "retry" }),
    await client.publish("t", "paid", { dedup: "retry" }),
    await client.publishMany([["t", 1], ["t", 2]], { dedup: "retry" }),
    await other.broadcast("paid", { dedup: "retry" }),
    await client.publish("t", "paid", { dedup: "order 7" }),
  ];
  assert.deepEqual(duplicates, [false, undefined, undefined, undefined, undefined]);
  await client.listen();
  await other.listen();
  const keys = endpoint.frames.all().map(({ dedup }) => dedup).filter((key) => key !== undefined);
  assert.equal(keys.length, 6);
  assert.ok(keys.includes("order 7"));
  assert.equal(new Set(keys).size, 6);
  for (const key of keys) assert.ok(key.length > 6 && key.length <= 40, key);
  for (const dedup of ["", "x".repeat(129), "\ud800", "true", 1, null]) {
    await assert.rejects(client.publish("t", 1, { dedup }), { code: "bad_state" }, String(dedup));
    await assert.rejects(client.publishMany([["t", 1]], { dedup }), { code: "bad_state" }, String(dedup));
  }
});

test("a retry has the key of its first try, and is no duplicate of another", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if (endpoint.connections.length === 1) connection.cut();
    else connection.reply(command, { result: "success", duplicate: true });
  });
  const client = await opened(t, endpoint);
  assert.equal(await client.publish("t", 1, { ack: true, dedup: "retry" }), false);
  assert.equal(await client.publish("t", 1, { ack: true, dedup: "mine" }), true);
  const [first, second, third] = endpoint.frames.all().map(({ dedup }) => dedup);
  assert.equal(first, second);
  assert.equal(third, "mine");
});

test("pipelined commands are matched by id whatever the order of replies", async (t) => {
  const held = [];
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if (held.push(command) < 10) return;
    for (const one of held.reverse()) connection.reply(one, { result: "success", duplicate: one.payload % 2 === 0 });
  });
  const client = await opened(t, endpoint);
  const answers = await Promise.all([...Array(10).keys()].map((number) => client.publish("t", number, { ack: true })));
  assert.deepEqual(answers, [...Array(10).keys()].map((number) => number % 2 === 0));
});

test("an error reply rejects its own command only, with code, what to do next, and its fields", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if (command.payload === "good") succeed(connection, command);
    else connection.reply(command, { error: command.payload, message: "m", info: "i", delivered: 2, failed: 1 });
  });
  const client = await opened(t, endpoint);
  const [bad, newer, good] = await Promise.all(
    ["partial", "of_a_newer_endpoint", "good"].map((payload) => outcome(client.publish("t", payload, { ack: true }))),
  );
  assert.equal(good, false);
  const { name, code, next, info, extra } = bad;
  assert.deepEqual({ name, code, next, info, extra }, {
    name: "ProtocolError", code: "partial", next: "give_up", info: "i", extra: { delivered: 2, failed: 1 },
  });
  assert.equal(newer.next, "give_up");
  assert.equal(endpoint.frames.length, 3); // none was repeated
});

test("failed publishes without ack are counted, kept and told", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, frame) => {
    if ("id" in frame) succeed(connection, frame);
    else connection.send(text({ error: "store_unavailable", info: "down", command: frame.command }));
  });
  const told = [];
  const client = await opened(t, endpoint, { onError: (error) => told.push(error.extra.command) });
  assert.equal(await client.publish("t", 1), undefined);
  await client.broadcast(2);
  await client.subscribe("behind them");
  assert.deepEqual(told, ["publish", "broadcast"]);
  assert.deepEqual([...client.errorCounts], [["store_unavailable", 2]]);
  assert.deepEqual(client.errors.map((error) => error.info), ["down", "down"]);
});

test("subscriptions are paged with the cursor", async (t) => {
  const cheap = { price: [{ numeric: ["<", 5] }] };
  const pages = {
    undefined: [{ topic: ["a", "constructor"], subscriptions: { a: [{}, { filter: cheap, until: "disconnect" }] } }, "p2"],
    p2: [{ topic: ["c"], subscriptions: { c: [{ until: "disconnect", ends_at: 1.5 }] } }, "p3"],
    p3: [{ topic: [] }, null],
  };
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    const [fields, cursor] = pages[command.cursor];
    connection.reply(command, command.limit === 2 ? { result: "success", ...fields, cursor } : { error: "bad_state" });
  });
  const client = await opened(t, endpoint);
  const found = [];
  for await (const one of client.subscriptions({ limit: 2 })) found.push(one);
  assert.deepEqual(found, [
    { topic: "a" },
    { topic: "a", filter: cheap, until: "disconnect" },
    { topic: "constructor" },
    { topic: "c", until: "disconnect", endsAt: 1.5 },
  ]);
});

test("a filter goes with its subscribe and its unsubscribe, and ends as any other", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint, { until: "disconnect" });
  const filter = { restaurant: ["Dominos", null, true], discount: [{ numeric: [">=", 30] }] };
  await client.subscribe("offers", { filter });
  await client.subscribe(["offers", "more"], { replace: true, until: null, ttlS: 9 });
  await client.unsubscribe("offers", { filter });
  const fields = endpoint.frames.all().map(({ id: _, client_id: __, ...rest }) => rest);
  assert.deepEqual(fields, [
    { command: "subscribe", filter, until: "disconnect", topic: ["offers"] },
    { command: "subscribe", replace: true, ttl_s: 9, topic: ["offers", "more"] },
    { command: "unsubscribe", filter, topic: ["offers"] },
  ]);
  for (const bad of [null, [], "price > 3", 7]) {
    await assert.rejects(client.subscribe("t", { filter: bad }), { name: "TypeError" });
    await assert.rejects(client.unsubscribe("t", { filter: bad }), { name: "TypeError" });
  }
  for (const bad of [{ price: [NaN] }, { price: [{ numeric: ["<", Infinity] }] }, { a: undefined }, { a: [() => 1] }]) {
    await assert.rejects(client.subscribe("t", { filter: bad }), { code: "bad_filter", next: "fix" });
  }
  assert.equal(endpoint.frames.length, 0);
});

test("what has ended with a filter is subscribed to with it, but for what was replaced", async (t) => {
  const filter = { price: [2, 1], zip: [{ "anything-but": ["81"] }] };
  const written = { zip: [{ "anything-but": "81" }], price: [1, 2] };
  const topics = ["a", "b", "c"].map((topic) => ({ topic }));
  const ended = [...topics, ...["a", "b", "d"].map((topic) => ({ topic, filter: written }))];
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if (command.command === "listen") {
      // The second attempt behaves as if some time had passed.
      connection.reply(command, { result: "success", ...(endpoint.connections.length > 1 ? { ended, ended_count: 6 } : {}) });
    } else {
      connection.reply(command, { result: "success", ...("until" in command ? { grace_s: 60 } : {}) });
    }
  });
  const told = [];
  const client = await opened(t, endpoint, { listen: true, onEnded: (...ended) => told.push(ended) });
  await client.subscribe(["a", "b"], { until: "disconnect", filter });
  await client.subscribe("c", { until: "disconnect" });
  await client.subscribe("b", { until: "disconnect", replace: true });
  await client.subscribe("c", { filter, replace: true });
  await client.subscribe("d", { filter, until: "disconnect" });
  await client.unsubscribe("d", { filter: written });
  endpoint.frames.all();
  endpoint.connection.cut();
  const again = [await endpoint.next("subscribe"), await endpoint.next("subscribe")];
  assert.deepEqual(again.map(({ topic, until, filter: its }) => [topic, until, its]), [
    [["b"], "disconnect", undefined],
    [["a"], "disconnect", { price: [1, 2], zip: [{ "anything-but": "81" }] }],
  ]);
  const others = [{ topic: "a" }, { topic: "c" }, { topic: "b", filter: { ...again[1].filter } }];
  assert.deepEqual(told, [[[...others, { topic: "d", filter: again[1].filter }], 4]]);
});

test("a token is taken back by its id or by its subject", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    const until = command.expires_at ?? 2;
    const more = command.sub === undefined ? {} : { issued_until: 1 };
    connection.reply(command, { result: "success", expires_at: until, ...more });
  });
  const client = await opened(t, endpoint);
  assert.deepEqual(await client.revoke({ jti: "t-1", expiresAt: 7 }), { expiresAt: 7, issuedUntil: null });
  assert.deepEqual(await client.revoke({ sub: "ann" }), { expiresAt: 2, issuedUntil: 1 });
  for (const wrong of [{}, { jti: "a", sub: "b" }, { jti: "" }, { jti: "é".repeat(65) }, { sub: 7 }, { jti: "\ud800" }]) {
    await assert.rejects(client.revoke(wrong), { code: "bad_state" });
  }
});

test("subscribers are paged with the cursor", async (t) => {
  const first = [{ client_id: "a", online: true }, { client_id: "b", online: false, filtered: true }];
  const pages = { undefined: [first, "b"], b: [[{ client_id: "c", online: true }], null] };
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    const [subscribers, cursor] = pages[command.cursor];
    const right = command.command === "subscribers" && command.topic === "room/1" && command.limit === 2;
    connection.reply(command, right ? { result: "success", count: 3, subscribers, cursor } : { error: "bad_state" });
  });
  const client = await opened(t, endpoint);
  const found = [];
  for await (const one of client.subscribers("room/1", { limit: 2 })) found.push([one.clientId, one.online, one.filtered]);
  assert.deepEqual(found, [["a", true, false], ["b", false, true], ["c", true, false]]);
  await assert.rejects(client.subscribers("").next(), { code: "bad_topic" });
});

test("more and more of a large subscribe is under way while it is quick, and none is lost", async (t) => {
  t.mock.method(performance, "now", () => 0); // from now on, everything takes no time on any machine
  const topics = Array.from({ length: 5000 }, (_, number) => `topic ${String(number).padStart(1000, "0")}`);
  const most = [];
  let held = [];
  let left = topics.length;
  const seen = [];
  // Answers when more commands than ever before wait for their replies, or when all commands wait.
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    held.push(command);
    seen.push(...command.topic);
    left -= command.topic.length;
    if (held.length <= most.length && held.length < 5 && left > 0) return;
    most.push(held.length);
    for (const one of held) connection.reply(one, { result: "success" });
    held = [];
  });
  const client = await opened(t, endpoint, { timeoutMs: 20_000 });
  await client.subscribe(topics);
  assert.deepEqual(most.slice(0, 4), [1, 2, 3, 4]);
  assert.deepEqual(seen.sort(), topics.sort());
});

test("a large subscribe ends with the first error, or its signal, and sends no more", async (t) => {
  const topics = Array.from({ length: 3000 }, (_, number) => `topic ${String(number).padStart(1000, "0")}`);
  const aborted = new AbortController();
  let fail = (connection, command) => connection.reply(command, { error: "forbidden", message: "no" });
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => fail(connection, command));
  const client = await opened(t, endpoint);
  await assert.rejects(client.subscribe(topics), { code: "forbidden" });
  assert.equal(endpoint.frames.all().length, 1);
  fail = () => aborted.abort(new RangeError("enough"));
  await assert.rejects(client.subscribe(topics, { signal: aborted.signal }), RangeError);
  assert.equal(endpoint.frames.all().length, 1);
});

test("bad topics, values that are no JSON, and too large ones are refused before anything is sent", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint, { maxFrameBytes: 5000 });
  for (const topic of ["", "a\nb", "é".repeat(513), "\ud800"]) {
    await assert.rejects(client.subscribe(["fine", topic]), { code: "bad_topic" });
    await assert.rejects(client.publishMany([["fine", 1], [topic, 2]]), { code: "bad_topic" });
  }
  await assert.rejects(client.publish("t", 1n), { code: "bad_json" });
  await assert.rejects(client.publish("t", "x".repeat(5000), { ack: true }), { code: "too_large" });
  await assert.rejects(client.subscribe(7), TypeError);
  await assert.rejects(client.subscribe("t", { timeoutMs: Infinity }), TypeError);
  assert.equal(endpoint.frames.length, 0);
});

test("wrong arguments are told at once", () => {
  for (const url of ["http://127.0.0.1", "127.0.0.1:9000", "ws://x/#f", "ws://a:b@x/", "ws://x/?access_token=a", []]) {
    assert.throws(() => new Client(url, "c"), TypeError, String(url));
  }
  for (const options of [{ timeoutMs: 0 }, { timeoutMs: NaN }, { queueMax: 0.5 }, { overflow: "x" }, { token: "a\r\nb" }]) {
    assert.throws(() => new Client(NOBODY, "c", options), TypeError, JSON.stringify(options));
  }
  assert.throws(() => new Client(NOBODY, ""), TypeError);
});

// -- time-outs and signals

test("a command without an answer times out, and its late reply is counted", async (t) => {
  const held = [];
  const endpoint = await ScriptedEndpoint.start(t, (...both) => held.push(both));
  const client = await opened(t, endpoint);
  const error = await outcome(client.subscribe("t", { timeoutMs: 50 }));
  assert.ok(error instanceof CommandTimeout);
  assert.deepEqual([error.code, error.next], ["timeout", "retry"]);
  await endpoint.next("subscribe");
  endpoint.script = succeed;
  const [[connection, command]] = held;
  succeed(connection, command);
  await client.subscribe("u");
  assert.equal(client.lateReplies, 1);
});

test("a signal ends the wait for a reply, a connection, and a notification", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, () => {});
  const client = await opened(t, endpoint);
  const abort = new AbortController();
  const { signal } = abort;
  const waits = [
    client.subscribe("t", { signal }),
    client.publish("t", 1, { ack: true, signal }),
    client.notifications({ signal }).next(),
    clientOf(t, await silent(t)).connect({ signal }),
  ].map(outcome);
  // without a warning of a leak
  for (let number = 0; number < 20; number++) waits.push(outcome(client.listen({ signal })));
  await endpoint.next("publish");
  abort.abort(new RangeError("enough"));
  for (const error of await Promise.all(waits)) assert.ok(error instanceof RangeError, String(error));
  await assert.rejects(client.publish("t", 1, { signal }), RangeError);
});

/** A server that accepts connections and never sends anything. */
async function silent(t) {
  const sockets = [];
  const server = createServer((socket) => sockets.push(socket.on("error", () => {})));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `ws://127.0.0.1:${server.address().port}/`;
}

test("connecting to an endpoint that never answers times out", async (t) => {
  await assert.rejects(clientOf(t, await silent(t), { timeoutMs: 50 }).connect(), {
    name: "ConnectFailed",
    message: /no answer within 50 ms/,
  });
});

test("a command waits for the connection no longer than its time-out, and says why there is none", async (t) => {
  let client;
  const endpoint = await ScriptedEndpoint.start(t);
  const options = { backoffBaseMs: 60_000, backoffMaxMs: 60_000, random: () => 1 };
  await new Promise((onLost) => opened(t, endpoint, { ...options, onLost }).then((made) => {
    client = made;
    endpoint.connection.cut();
  }));
  const soon = { timeoutMs: 300 };
  const publishes = [client.publish("t", 1, soon), client.publish("t", 1, { ack: true, dedup: true, ...soon })];
  for (const error of await Promise.all([client.subscribe("t", soon), ...publishes].map(outcome))) {
    assert.ok(error instanceof CommandTimeout, String(error));
  }
  await assert.rejects(client.subscribe("t", soon), (error) => error.cause instanceof ConnectionLost);
});

// -- connecting and reconnecting

test("connects to the first of the list that works; says of each why when none does", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  assert.equal((await opened(t, [NOBODY, endpoint])).url, endpoint.url);
  const error = await outcome(clientOf(t, [NOBODY, `${NOBODY}b`]).connect());
  assert.ok(error instanceof ConnectFailed);
  assert.match(error.message, /ws:\/\/127\.0\.0\.1:9\/: .*ECONNREFUSED.*; ws:\/\/127\.0\.0\.1:9\/b: .*ECONNREFUSED/);
});

test("reconnects to the next endpoint, listens again first, and goes on receiving", async (t) => {
  const [first, second] = [await ScriptedEndpoint.start(t), await ScriptedEndpoint.start(t)];
  const told = [];
  const client = await opened(t, [first, second], {
    listen: true,
    onLost: (error) => told.push(error.name),
    onConnected: (url) => told.push(url),
  });
  await first.next("listen");
  first.connection.notify("t", 1);
  assert.deepEqual(await take(client, 1), [["t", 1]]);
  const waiting = client.subscribe("t");
  first.script = () => {};
  first.connection.cut();
  assert.equal((await second.frames.next()).command, "listen");
  assert.equal((await second.frames.next()).command, "subscribe");
  await waiting;
  second.connection.notify("t", 2);
  assert.deepEqual(await take(client, 1), [["t", 2]]);
  assert.deepEqual(told, [first.url, "ConnectionLost", second.url]);
  assert.deepEqual([client.url, client.reconnects], [second.url, 1]);
});

test("listening is not renewed after unlisten", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint, { listen: true });
  await client.unlisten();
  endpoint.connection.cut();
  await endpoint.connection.closed;
  await client.subscribe("t");
  assert.deepEqual(endpoint.frames.all().map(({ command }) => command), ["listen", "unlisten", "subscribe"]);
});

test("an endpoint that cannot listen now is passed over; one that never will ends the client", async (t) => {
  const refusing = (error) => (connection, command) => connection.reply(command, { error, info: "no" });
  const first = await ScriptedEndpoint.start(t, refusing("store_unavailable"));
  const second = await ScriptedEndpoint.start(t);
  assert.equal((await opened(t, [first, second], { listen: true })).url, second.url);
  first.script = refusing("bad_state");
  await assert.rejects(clientOf(t, first, { listen: true }).connect(), { code: "bad_state" });
  const client = await opened(t, second, { listen: true });
  second.script = refusing("unauthorized");
  second.connection.cut();
  await assert.rejects(take(client, 1), { code: "unauthorized" });
  assert.equal((await client.closed).code, "unauthorized");
});

test("what is safe to repeat is repeated after a broken connection, and nothing else", async (t) => {
  const commands = [
    [(client) => client.subscribe("t"), true],
    [(client) => client.listen(), true],
    [(client) => client.publish("t", 1, { ack: true }), true],
    [(client) => client.broadcast(1, { ack: true }), true],
    [(client) => client.publish("t", 1, { ack: true, dedup: false }), false],
    [(client) => client.broadcast(1, { ack: true, dedup: false }), false],
  ];
  for (const [send, repeated] of commands) {
    const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
      if (endpoint.connections.length === 1) connection.cut();
      else connection.reply(command, { result: "success", duplicate: true });
    });
    const error = await outcome(send(await opened(t, endpoint)));
    assert.equal(error instanceof ConnectionLost, !repeated, String(error));
  }
});

test("a passing error is repeated until it passes or the time is up", async (t) => {
  let tries = 0;
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) =>
    connection.reply(command, ++tries % 3 ? { error: "peer_unavailable", info: "again" } : { result: "success" }),
  );
  const client = await opened(t, endpoint);
  await client.subscribe("t");
  assert.equal(tries, 3);
  await assert.rejects(client.publish("t", 1, { ack: true, dedup: false }), { code: "peer_unavailable", next: "retry" });
  assert.equal(tries, 4);
  endpoint.script = (connection, command) => connection.reply(command, { error: "store_unavailable", info: "down" });
  await assert.rejects(client.subscribe("t", { timeoutMs: 1000 }), { code: "store_unavailable" });
});

test("the backoff has full jitter, grows to its maximum, and begins again after a connection that lasted", async (t) => {
  let nowMs = 0;
  t.mock.method(performance, "now", () => nowMs);
  const draws = [];
  const timers = t.mock.method(globalThis, "setTimeout");
  const endpoint = await ScriptedEndpoint.start(t);
  const fate = [1, 0.5, 0, 1, 0.25, 1, 1];
  const unreachable = [];
  const client = await opened(t, [endpoint], {
    listen: true,
    backoffBaseMs: 7,
    backoffMaxMs: 40,
    random: () => {
      draws.push(fate[draws.length] ?? 1);
      return draws.at(-1);
    },
    onUnreachable: (error) => {
      unreachable.push(error);
      if (unreachable.length === 6) endpoint.handshake = answer;
    },
  });
  const answer = endpoint.handshake;
  endpoint.handshake = (connection) => connection.cut();
  const slept = () => timers.mock.calls.map(({ arguments: [, ms] }) => ms).filter((ms) => ms <= 40);
  await endpoint.next("listen");
  endpoint.connection.cut();
  await endpoint.next("listen");
  assert.deepEqual(slept(), [7, 7, 0, 40, 10, 40, 40]); // draw × min(40, 7 × 2^n)
  assert.ok(unreachable.every((error) => error instanceof Unreachable));
  // the `listen` got its answer: only the connection's duration counts, not received messages
  await client.subscribe("t");
  nowMs += 9_999;
  endpoint.connection.cut();
  await endpoint.next("listen");
  assert.equal(slept().at(-1), 40);
  await client.subscribe("t");
  nowMs += 10_000;
  endpoint.connection.cut();
  await endpoint.next("listen");
  assert.equal(slept().at(-1), 7);
});

for (const code of [4001, 4006, 1008, 1001, 4002, 4004, null]) {
  test(`closed with ${code}: connects again, or never does`, async (t) => {
    const endpoint = await ScriptedEndpoint.start(t);
    const client = await opened(t, endpoint, { listen: true });
    await endpoint.next("listen");
    endpoint.connection.notify("t", "before");
    endpoint.connection.send(code === null ? serverFrame(0x88) : closeFrame(code, "why"));
    assert.deepEqual(await take(client, 1), [["t", "before"]]);
    if (![4001, 4006, 1008].includes(code)) {
      await endpoint.next("listen");
      return;
    }
    await assert.rejects(within(take(client, 1), "the end"), { name: "ClosedForGood", closeCode: code, next: "give_up" });
    await assert.rejects(client.subscribe("t"), ClosedForGood);
    await assert.rejects(client.publish("t", 1), ClosedForGood);
    assert.equal((await client.closed).closeCode, code);
    assert.equal(endpoint.connections.length, 1);
  });
}

// -- hostile endpoints

for (const [what, bytes, closeCode] of [
  ["no JSON", text("{not json"), 1002],
  ["no object", text("[]"), 1002],
  ["null", text("null"), 1002],
  ["an empty message", text(""), 1002],
  ["an object that is no message", text({ hello: "there" }), 1002],
  ["a success of nothing", text({ result: "success" }), 1002],
  ["a reply to what was never asked", text({ result: "success", id: 10 ** 6 }), 1002],
  ["a reply to half a command", text({ result: "success", id: 0.5 }), 1002],
  ["a key that is a number", text({ key: 7, broadcast: 1 }), 1002],
  ["a binary message", serverFrame(0x82, "{}"), 1002],
  ["a masked frame", Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x7b, 0x7d]), 1002],
  ["bytes at random", Buffer.from("HTTP/1.1 200 OK\r\n\r\n"), 1002],
  ["a text that is not UTF-8", serverFrame(0x81, Buffer.from([0xff])), 1007],
  ["a message announced as huge", Buffer.from([0x81, 127, 0, 0, 1, 0, 0, 0, 0, 0]), 1009],
]) {
  test(`an endpoint that sends ${what} loses the connection, and the next is taken`, async (t) => {
    const [first, second] = [await ScriptedEndpoint.start(t), await ScriptedEndpoint.start(t)];
    const lost = [];
    const client = await opened(t, [first, second], { listen: true, onLost: (error) => lost.push(error) });
    first.connection.send(bytes);
    await second.next("listen");
    await client.subscribe("t");
    await first.connection.closed;
    assert.equal(first.connection.closeCode, closeCode);
    assert.match(lost[0].message, /the endpoint sent/);
    assert.equal(client.url, second.url);
  });
}

test("an endpoint that closes in the middle of a reply", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if (endpoint.connections.length > 1) return succeed(connection, command);
    const bytes = text({ result: "success", id: command.id });
    connection.socket.end(bytes.subarray(0, bytes.length - 3));
  });
  const client = await opened(t, endpoint);
  await client.subscribe("t");
  assert.equal(client.reconnects, 1);
});

test("an endpoint that answers every command twice, and one that says a field more", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    connection.reply(command, { result: "success", of_a_newer_version: 1 });
    connection.reply(command, { result: "success" });
  });
  const client = await opened(t, endpoint, { listen: true });
  await client.subscribe("t");
  await client.subscribe("u");
  assert.equal(client.reconnects, 0);
  // The last command's second reply may be read with its first, or after it.
  assert.ok([2, 3].includes(client.lateReplies), `${client.lateReplies}`);
});

test("answers to the handshake that are none are refused, with their reason", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  for (const [answer, reason] of [
    [() => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 8\r\n\r\nno token", /HTTP 401: no token/],
    [() => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 999\r\n\r\ngoing", /no answer within/],
    [() => "HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", /HTTP 302/],
    [() => "SSH-2.0-OpenSSH_9.2\r\n", /Parse Error|Expected HTTP/],
    [() => "", /no answer within/],
    [({ request }) => accepted(request, { accept: "AAAA" }), /Sec-WebSocket-Accept/],
    [({ request }) => accepted(request, { extra: "Sec-WebSocket-Extensions: permessage-deflate\r\n" }), /extension/],
    [({ request }) => accepted(request, { extra: "Sec-WebSocket-Protocol: x\r\n" }), /subprotocol/],
    [({ request }) => accepted(request).replace("websocket", "h2c"), /something other than a WebSocket/],
  ]) {
    endpoint.handshake = (connection) => connection.send(answer(connection));
    const timeoutMs = reason.source === "no answer within" ? 300 : 20_000;
    await assert.rejects(clientOf(t, endpoint, { timeoutMs }).connect(), { name: "ConnectFailed", message: reason });
    await within(endpoint.connection.closed, "the connection's end");
  }
});

test("messages behind the handshake in the same packet are not lost", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  endpoint.handshake = (connection) =>
    connection.send(Buffer.concat([Buffer.from(accepted(connection.request)), text({ key: null, broadcast: "early" })]));
  const client = await opened(t, endpoint);
  assert.deepEqual(await take(client, 1), [[null, "early"]]);
});

test("pings are answered; of many that nobody reads the answers of, the latest", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  await opened(t, endpoint);
  endpoint.connection.send(serverFrame(0x89, "are you there"));
  assert.equal(await endpoint.pongs.next(), "are you there");
  const { socket } = endpoint.connection;
  socket.pause();
  const count = 150_000;
  const pings = Array.from({ length: count }, (_, number) => serverFrame(0x89, String(number).padStart(100, "0")));
  await new Promise((resolve) => socket.write(Buffer.concat(pings), resolve));
  socket.resume();
  let answers = 1;
  while (Number(await endpoint.pongs.next()) !== count - 1) answers += 1;
  assert.ok(answers < count, `${answers} of ${count}`);
});

test("a silent endpoint is pinged, and given up when it does not answer", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  const endpoint = await ScriptedEndpoint.start(t);
  const lost = deferred();
  const client = await opened(t, endpoint, { onLost: lost.resolve });
  await client.subscribe("t");
  t.mock.timers.tick(25_000); // it has received something since the connection was made
  t.mock.timers.tick(25_000);
  await client.subscribe("t"); // behind the ping
  assert.deepEqual(endpoint.connection.pings, [""]);
  t.mock.timers.tick(10_000); // it has received something again
  t.mock.timers.tick(15_000);
  t.mock.timers.tick(25_000);
  t.mock.timers.tick(10_000);
  assert.match((await lost.promise).message, /no answer to a ping within 10 s/);
  t.mock.timers.tick(1);
  await client.subscribe("t");
  assert.equal(client.reconnects, 1);
});

test("a connection that a command has waited on in vain is probed, and given up when nothing comes", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const endpoint = await ScriptedEndpoint.start(t, () => {});
  const lost = deferred();
  const client = await opened(t, endpoint, { onLost: lost.resolve });
  const waits = client.subscribe("t", { timeoutMs: 100 });
  await endpoint.next("subscribe");
  endpoint.connection.socket.pause(); // like a network that has gone silent
  t.mock.timers.tick(100);
  await assert.rejects(waits, CommandTimeout);
  t.mock.timers.tick(10_000);
  assert.match((await lost.promise).message, /no answer to a ping within 10 s/);
});

// -- notifications

test("what was received before the end is delivered, and then the iteration ends", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint, { listen: true });
  for (const number of [0, 1, 2]) endpoint.connection.notify(number ? "t" : null, number);
  await client.subscribe("behind them");
  await client.close();
  const notes = [];
  for await (const { key, broadcast } of client) notes.push([key, broadcast]);
  assert.deepEqual(notes, [[null, 0], ["t", 1], ["t", 2]]);
});

test("one iteration at a time; another after it", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint);
  const first = client.notifications();
  const waiting = first.next();
  await assert.rejects(client.notifications().next(), TypeError);
  endpoint.connection.notify("t", 1);
  assert.equal((await waiting).value.broadcast, 1);
  await first.return();
  endpoint.connection.notify("t", 2);
  assert.deepEqual(await take(client, 1), [["t", 2]]);
});

test("a slow iteration: the oldest of a full queue are dropped, each counted and told", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const told = [];
  const onDropped = ({ broadcast }, dropped) => told.push([broadcast, dropped]);
  const client = await opened(t, endpoint, { listen: true, queueMax: 100, onDropped });
  for (let number = 0; number < 1000; number++) endpoint.connection.notify("t", number);
  await client.subscribe("behind them");
  assert.deepEqual([client.queued, client.dropped], [100, 900]);
  assert.deepEqual(told, Array.from({ length: 900 }, (_, number) => [number, number + 1]));
  assert.deepEqual(await take(client, 100), Array.from({ length: 100 }, (_, number) => ["t", 900 + number]));
});

test("overflow: pause stops the reading and loses nothing", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint, { listen: true, queueMax: 100, overflow: "pause" });
  const count = 20_000;
  const payload = "x".repeat(1000); // in total, far more than the sockets' buffers hold
  let written = 0;
  const flood = (async () => {
    for (; written < count; written++) {
      const { socket } = endpoint.connection;
      if (!socket.write(text({ key: "t", broadcast: [written, payload] }))) {
        await new Promise((resolve) => socket.once("drain", resolve));
      }
    }
  })();
  // While the client is paused, commands wait as well. This command's time-out shows that the client reads nothing.
  await assert.rejects(client.subscribe("u", { timeoutMs: 500 }), CommandTimeout);
  assert.ok(written < count && client.queued < 1000, `${written} written, ${client.queued} queued`);
  let next = 0;
  for await (const { broadcast } of client) {
    assert.equal(broadcast[0], next);
    if (++next === count) break;
  }
  await flood;
  assert.equal(client.dropped, 0);
});

test("a handler is called as they come; one with a promise, one at a time, in order, from the bounded queue", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const got = [];
  const client = await opened(t, endpoint, { onNotification: (key, payload) => void got.push([key, payload]) });
  assert.throws(() => client.notifications(), TypeError);
  endpoint.connection.notify("t", 1);
  endpoint.connection.notify(null, 2);
  await client.subscribe("behind them");
  assert.deepEqual(got, [["t", 1], [null, 2]]);

  let open;
  const gate = new Promise((resolve) => (open = resolve));
  const handled = [];
  const slow = await opened(t, endpoint, {
    queueMax: 3,
    onNotification: async (key, number) => {
      await gate;
      handled.push(number);
    },
  });
  for (let number = 0; number < 10; number++) endpoint.connection.notify("t", number);
  await slow.subscribe("behind them");
  assert.deepEqual([slow.queued, slow.dropped, handled], [3, 6, []]);
  open();
  endpoint.connection.notify("t", 10);
  await slow.subscribe("behind it");
  assert.deepEqual(handled, [0, 7, 8, 9, 10]);
});

for (const failing of ["onNotification", "an async onNotification", "onError", "onConnected"]) {
  test(`what ${failing} throws ends the client and is not swallowed`, async (t) => {
    const endpoint = await ScriptedEndpoint.start(t);
    const fault = new RangeError("the program's own");
    const bad = () => {
      throw fault;
    };
    const handler = failing === "an async onNotification" ? { onNotification: async () => bad() } : { [failing]: bad };
    const client = await opened(t, endpoint, handler);
    endpoint.connection.notify("t", 1);
    endpoint.connection.send(text({ error: "internal", command: "publish" }));
    assert.equal(await within(client.closed, "the end"), fault);
    await assert.rejects(client.subscribe("t"), fault);
    await assert.rejects(client.close(), fault);
    await endpoint.connection.closed;
    assert.equal(endpoint.connections.length, 1);
  });
}

// -- tokens

test("a token goes into the header; a function is asked for each connection, and again when it fails", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  await opened(t, endpoint, { token: "fixed.to.ken" });
  assert.match(endpoint.connection.request, /^Authorization: Bearer fixed\.to\.ken$/im);
  let asked = 0;
  const token = async () => {
    if (++asked === 2) throw new Error("the issuer sleeps");
    return `token-${asked}`;
  };
  const unreachable = [];
  const client = await opened(t, endpoint, { token, onUnreachable: (error) => unreachable.push(error.message) });
  endpoint.connection.cut();
  await endpoint.connection.closed;
  await client.subscribe("t");
  assert.match(endpoint.connection.request, /^Authorization: Bearer token-3$/im);
  assert.match(unreachable.join(), /no token: the issuer sleeps/);
  for (const given of ["a\r\nX-Evil: 1", "<html>an error page</html>", "", undefined, null, {}]) {
    await assert.rejects(clientOf(t, endpoint, { token: () => given }).connect(), { name: "ConnectFailed", message: /no token: / });
  }
  const never = clientOf(t, endpoint, { token: () => new Promise(() => {}), timeoutMs: 50 });
  await assert.rejects(never.connect(), { message: /no answer within 50 ms/ });
});

test("no error says a token", async (t) => {
  const client = clientOf(t, [NOBODY, await silent(t)], { token: "se.cr.et", timeoutMs: 50 });
  const error = await outcome(client.connect());
  assert.ok(!`${error.stack} ${JSON.stringify(error)}`.includes("se.cr.et"));
});

// -- the end

test("close shakes hands, fails the commands under way, and may be called again", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, () => {});
  const client = await opened(t, endpoint);
  const underWay = outcome(client.subscribe("t"));
  await endpoint.next("subscribe");
  await client.close();
  await client.close();
  assert.equal(endpoint.connection.closeCode, 1000);
  assert.ok((await underWay) instanceof ClosedForGood);
  await assert.rejects(client.publish("t", 1), { name: "ClosedForGood", closeCode: 1000 });
  assert.equal((await client.notifications().next()).done, true);
  assert.equal(await client.closed, null);
  await assert.rejects(client.connect(), ClosedForGood);
});

test("close takes two seconds at most of an endpoint that does not answer it", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  endpoint.ignoresClose = true;
  const client = await opened(t, endpoint);
  const beganMs = performance.now();
  await client.close();
  assert.ok(performance.now() - beganMs < 10_000);
  await endpoint.connection.closed;
});

test("close while it connects, and while it connects again", async (t) => {
  const client = clientOf(t, await silent(t));
  const connecting = outcome(client.connect());
  await client.close();
  assert.ok((await connecting) instanceof ClosedForGood);
  const endpoint = await ScriptedEndpoint.start(t);
  const another = await opened(t, endpoint, { backoffBaseMs: 60_000, backoffMaxMs: 60_000, random: () => 1 });
  endpoint.connection.cut();
  await endpoint.connection.closed;
  await within(another.close(), "the end of one that waits to connect again");
});

test("commands of a client that never connected are refused at once", async (t) => {
  const client = clientOf(t, NOBODY);
  await assert.rejects(client.subscribe("t"), { name: "TypeError", message: /connect/ });
  await assert.rejects(client.publish("t", 1), { name: "TypeError", message: /connect/ });
  await assert.rejects(client.connect(), ConnectFailed);
  await assert.rejects(client.connect(), ConnectFailed); // you can try again
});

test("the browser's entry works in Node too, where it loads Node's connection", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await browser.Client.open(endpoint.url, "c", { token: "a.b.c" });
  t.after(() => client.close());
  await client.subscribe("t");
  assert.match(endpoint.connection.request, /^Authorization: Bearer/im);
});
