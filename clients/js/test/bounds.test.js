/** Tests what the client sends about bounds and windows, and what it confirms: scripted endpoints and a real one. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { aboutFields, checkBounds, checkWindow } from "../src/bounds.js";
import { Credit, IDLE_MS } from "../src/credit.js";
import { Client } from "../src/node.js";
import { deferred } from "../src/waiting.js";
import { Endpoint, skip, within } from "./endpoints.js";
import { ScriptedEndpoint, succeed, text } from "./scripted.js";

const vectors = JSON.parse(readFileSync(new URL("vectors.json", import.meta.url), "utf8"));

const WALL = [
  { prefix: "", staleness_ms: 5000, numerical: null, interval_ms: 1000, deliver: "latest", priority: -1 },
];

async function opened(t, endpoint, options = {}) {
  const client = new Client(endpoint.url, "c1", { timeoutMs: 20_000, backoffBaseMs: 1, listen: true, ...options });
  t.after(() => client.close().catch(() => {}));
  await client.connect();
  return client;
}

/** Make a round trip, so that everything that the endpoint sent before has arrived. */
const settled = (client) => client.publish("a round trip", 1, { ack: true, dedup: "retry" });

const credits = (endpoint) =>
  endpoint.frames.all().filter(({ command }) => command === "credit").map(({ count }) => count);

function notify(connection, ...payloads) {
  for (const payload of payloads) connection.notify("t", payload);
}

// -- bounds

test("bounds, windows, items and weights are refused as an endpoint does it, in the same words", () => {
  const checks = [
    [vectors.bounds, checkBounds],
    [vectors.windows, checkWindow],
    [vectors.items.filter(([value]) => value !== undefined), (item) => aboutFields(item, undefined)],
    [vectors.weights, (weight) => aboutFields(undefined, weight)],
  ];
  for (const [values, check] of checks) {
    assert.ok(values.some(([, refusal]) => refusal === null));
    for (const [value, refusal] of values) {
      if (refusal === null) check(value);
      else assert.throws(() => check(value), { code: refusal[0], info: refusal[1] }, JSON.stringify(value));
    }
  }
  for (const bad of [{ numerical: Infinity }, { numerical: NaN }, { priority: NaN }, { staleness_ms: NaN }]) {
    assert.throws(() => checkBounds([{ prefix: "", ...bad }]), { code: "bad_state" });
  }
  assert.throws(() => aboutFields("\ud800", 1), { code: "bad_state" });
  assert.throws(() => aboutFields("a", NaN), { code: "bad_state" });
});

test("each `listen` has the bounds and the window, also on the next connection", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    connection.reply(command, { result: "success", ...(command.command === "listen" ? { bounds: WALL } : {}) });
  });
  const rules = [{ topic: "t", staleness_ms: 50 }];
  const client = await opened(t, endpoint, { bounds: rules, window: 10 });
  rules[0].staleness_ms = 1; // a change that the client did not check
  assert.deepEqual(client.bounds, WALL);
  endpoint.connection.cut();
  await settled(client);
  await client.unlisten();
  await client.listen();
  const listens = endpoint.frames.all().filter(({ command }) => command === "listen");
  assert.equal(listens.length, 3);
  for (const { bounds, window } of listens) {
    assert.deepEqual([bounds, window], [[{ topic: "t", staleness_ms: 50 }], 10]);
  }
});

test("without these options a `listen` says nothing of them", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint, { onNotification: () => {} });
  notify(endpoint.connection, 1, 2, 3);
  await settled(client);
  const [listen, ...others] = endpoint.frames.all();
  assert.deepEqual(listen, { command: "listen", client_id: "c1", id: listen.id });
  assert.deepEqual(others.map(({ command }) => command), ["publish"]);
  assert.deepEqual(client.bounds, []);
});

test("`setBounds` replaces the bounds for good, unless the endpoint refuses", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if (command.command !== "bounds") succeed(connection, command);
    else if (command.bounds === "wall") connection.reply(command, { result: "success", bounds: WALL });
    else connection.reply(command, { error: "bad_state", info: "The client does not listen" });
  });
  const client = await opened(t, endpoint, { bounds: "live" });
  await assert.rejects(client.setBounds("lively"), { code: "bad_state", info: /^Key 'bounds': there is no preset/ });
  assert.deepEqual(client.bounds, []);
  await client.setBounds("wall");
  assert.deepEqual(client.bounds, WALL);
  await assert.rejects(client.setBounds("screen"), { code: "bad_state", info: "The client does not listen" });
  assert.deepEqual(client.bounds, WALL);
  endpoint.connection.cut();
  await settled(client);
  assert.deepEqual(client.bounds, []); // the rules that this endpoint states
  const said = endpoint.frames.all().map(({ command, bounds }) => [command, bounds]);
  assert.deepEqual(said.filter(([command]) => command !== "publish"), [
    ...[["listen", "live"], ["bounds", "wall"], ["bounds", "screen"], ["listen", "wall"]],
  ]);
});

test("wrong options are refused at once, wrong values of a publish before it is sent", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  assert.throws(() => new Client(endpoint.url, "c1", { bounds: "lively" }), { code: "bad_state" });
  assert.throws(() => new Client(endpoint.url, "c1", { window: 0 }), { code: "bad_state", info: /^Key 'window'/ });
  const client = await opened(t, endpoint, { listen: false });
  await assert.rejects(client.publish("t", 1, { item: "" }), { code: "bad_state", info: /^Key 'item'/ });
  await assert.rejects(client.publish("t", 1, { weight: -1 }), { code: "bad_state", info: /^Key 'weight'/ });
  await client.publish("t", 1, { item: "AAPL", weight: 0.5 });
  await client.publish("t", 2, { item: "AAPL", ack: true });
  await client.publishMany([["t", 3]], { item: "MSFT", weight: 2 });
  await settled(client);
  const [first, { id: _, ...second }, third, { command }] = endpoint.frames.all();
  assert.deepEqual(first, { command: "publish", client_id: "c1", topic: "t", payload: 1, item: "AAPL", weight: 0.5 });
  assert.deepEqual(second, { command: "publish", client_id: "c1", topic: "t", payload: 2, item: "AAPL", ack: true });
  assert.deepEqual(third, { command: "publish", client_id: "c1", topic: "t", payload: 3, item: "MSFT", weight: 2 });
  assert.equal(command, "publish", "the round trip");
});

test("a notification says how many messages it stands for", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint);
  endpoint.connection.send(text({ key: "t", broadcast: 1 }));
  endpoint.connection.send(text({ key: "t", broadcast: 2, skipped: 7 }));
  endpoint.connection.send(text({ key: "t", broadcast: 3, mid: "o.1", skipped: 1 }));
  await settled(client);
  const notes = client.notifications();
  const got = [];
  while (client.queued > 0) got.push((await notes.next()).value);
  assert.deepEqual(got, [
    { key: "t", broadcast: 1, skipped: 0 },
    { key: "t", broadcast: 2, skipped: 7 },
    { key: "t", broadcast: 3, skipped: 1, mid: "o.1" },
  ]);
  for (const [number, skipped] of [-1, 1.5, "1", null].entries()) {
    endpoint.connection.send(text({ key: "t", broadcast: 4, skipped }));
    await settled(client);
    assert.equal(client.reconnects, number + 1, "it cuts the connection");
  }
});

// -- credit

test("credit: half a window at once, less after a while, and nothing twice", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const sent = [];
  const credit = new Credit(10, (count) => sent.push(count));
  const process = (count) => {
    for (let number = 0; number < count; number++) credit.receive();
    credit.update(0);
  };
  for (let number = 0; number < 9; number++) process(1);
  assert.deepEqual(sent, [5]);
  t.mock.timers.tick(IDLE_MS);
  assert.deepEqual(sent, [5, 9]);
  t.mock.timers.tick(2 * IDLE_MS);
  process(1);
  process(11);
  assert.deepEqual(sent, [5, 9, 21]);
  t.mock.timers.tick(2 * IDLE_MS);
  process(1);
  credit.begin(); // another connection, on which nothing needs a confirmation yet
  t.mock.timers.tick(2 * IDLE_MS);
  process(6);
  process(1);
  credit.stop();
  t.mock.timers.tick(2 * IDLE_MS);
  assert.deepEqual(sent, [5, 9, 21, 6]);
  const narrow = new Credit(1, (count) => sent.push(count));
  narrow.receive();
  narrow.update(1);
  assert.equal(sent.length, 4);
  narrow.update(0);
  assert.deepEqual(sent.slice(4), [1]);
});

test("credit: a notification counts when the iteration has gone past it", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint, { window: 4 });
  notify(endpoint.connection, 1, 2, 3, 4);
  endpoint.connection.notify(null, "a broadcast counts as well");
  await settled(client);
  assert.deepEqual(credits(endpoint), []);
  const counts = [];
  const notes = client.notifications();
  for (let number = 0; number < 5; number++) {
    await notes.next();
    await settled(client);
    counts.push(credits(endpoint));
  }
  assert.deepEqual(counts, [[], [], [2], [], [4]]);
  t.mock.timers.tick(IDLE_MS);
  const next = notes.next(); // past the fifth
  await settled(client);
  t.mock.timers.tick(IDLE_MS);
  await settled(client);
  assert.deepEqual(credits(endpoint), [5]);
  notify(endpoint.connection, 6);
  assert.equal((await next).value.broadcast, 6);
});

test("credit: a notification counts when its handler has returned, or its promise is fulfilled", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const endpoint = await ScriptedEndpoint.start(t);
  const slow = [];
  const onNotification = (_, payload) => {
    if (payload !== "slow") return undefined;
    slow.push(deferred());
    return slow.at(-1).promise;
  };
  const client = await opened(t, endpoint, { window: 6, onNotification });
  notify(endpoint.connection, "quick", "slow", "quick", "quick", "slow", "quick");
  await settled(client);
  t.mock.timers.tick(IDLE_MS);
  await settled(client);
  assert.deepEqual(credits(endpoint), [1]);
  slow[0].resolve();
  await settled(client);
  assert.deepEqual(credits(endpoint), [4]); // everything before the next slow message
  slow[1].resolve();
  await settled(client);
  t.mock.timers.tick(IDLE_MS);
  await settled(client);
  assert.deepEqual(credits(endpoint), [6]);
});

test("credit: a failed handler confirms nothing", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint, {
    window: 1,
    onNotification: () => {
      throw new Error("a bug");
    },
  });
  notify(endpoint.connection, 1);
  assert.equal((await within(client.closed, "the client's end")).message, "a bug");
  await within(endpoint.connection.closed, "the connection's end");
  assert.deepEqual(credits(endpoint), []);
});

test("credit: what the client drops itself counts: repeats, and the oldest of a full queue", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if ("id" in command) connection.reply(command, { result: "success", recovering: false, position: "p" });
  });
  const client = await opened(t, endpoint, { window: 4, recover: true, queueMax: 3 });
  const send = (...mids) => mids.forEach((mid) => endpoint.connection.send(text({ key: "t", broadcast: mid, mid })));
  send("o.1", "o.2", "o.1", "o.2", "o.3");
  await settled(client);
  assert.deepEqual([credits(endpoint), client.repeats, client.queued], [[2], 2, 3]);
  send("o.4", "o.5");
  await settled(client);
  assert.deepEqual([credits(endpoint), client.dropped, client.queued], [[4], 2, 3]);
});

test("credit: each connection counts from its own beginning, without what still waits of the former one", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const endpoint = await ScriptedEndpoint.start(t);
  const connected = deferred();
  const onConnected = () => client.reconnects === 1 && connected.resolve();
  const options = { timeoutMs: 20_000, listen: true, window: 4, onConnected, random: () => 0 };
  const client = new Client(endpoint.url, "c1", options);
  t.after(() => client.close());
  await client.connect();
  notify(endpoint.connection, "a", "b", "c");
  await settled(client);
  const notes = client.notifications();
  await notes.next();
  const lost = within(endpoint.connection.closed, "the connection's end");
  endpoint.connection.cut();
  await lost;
  while (endpoint.connections.length < 2) {
    await new Promise((resolve) => setImmediate(resolve));
    t.mock.timers.tick(1); // the wait before it connects again
  }
  await connected.promise;
  notify(endpoint.connection, "d", "e", "f");
  await settled(client);
  const counts = [];
  for (let number = 0; number < 5; number++) {
    const { value } = await notes.next();
    await settled(client);
    counts.push([value.broadcast, ...credits(endpoint)]);
  }
  assert.deepEqual(counts, [["b"], ["c"], ["d"], ["e"], ["f", 2]]);
});

test("a real endpoint keeps to the window of a slow reader, and `skipped` says the rest", { skip }, async (t) => {
  const endpoint = await Endpoint.start(t);
  const rule = { prefix: "", staleness_ms: 10, deliver: "latest" };
  const reader = await opened(t, endpoint, { bounds: [rule], window: 4 });
  assert.deepEqual(reader.bounds, [{ ...rule, numerical: null, interval_ms: 0, priority: 0 }]);
  const feed = await Client.open(endpoint.url, "feed");
  t.after(() => feed.close());
  await reader.subscribe("prices");
  for (let price = 1; price <= 100; price++) {
    const item = ["AAPL", "MSFT"][price % 2];
    await feed.publish("prices", { item, price }, { item, ack: true, dedup: false });
  }
  await settled(reader);
  assert.ok(reader.queued <= 4, "the rest waits in the endpoint, one message of each item");
  const latest = {};
  let due = 0;
  const all = async () => {
    for await (const { broadcast, skipped } of reader) {
      due += 1 + skipped;
      latest[broadcast.item] = broadcast.price;
      if (due === 100) return;
    }
  };
  await within(all(), "all messages, most of them skipped");
  assert.deepEqual(latest, { AAPL: 100, MSFT: 99 });
  await reader.setBounds([]);
  assert.deepEqual(reader.bounds, []);
  await feed.publish("prices", "unbounded", { ack: true });
  assert.equal((await within(reader.notifications().next(), "a notification")).value.broadcast, "unbounded");
});
