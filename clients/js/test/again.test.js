/** Subscriptions that end: the client against scripted endpoints. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as browser from "../src/index.js";
import { Client } from "../src/node.js";
import { within } from "./endpoints.js";
import { ScriptedEndpoint, closeFrame } from "./scripted.js";

async function opened(t, endpoint, options = {}) {
  const client = new Client(endpoint.url, "c1", { timeoutMs: 20_000, backoffBaseMs: 1, listen: true, ...options });
  t.after(() => client.close().catch(() => {}));
  await client.connect();
  return client;
}

/** Return the outcome of a promise: its value, or the error of its rejection. */
const outcome = (promise) => promise.then((value) => value, (error) => error);

const named = (topics) => topics.map((topic) => ({ topic }));

/** Return a script of an endpoint at which subscriptions to these topics have ended. */
const ended = (...topics) => (connection, command) => {
  if (command.command === "listen" && topics.length) {
    connection.reply(command, { result: "success", ended: named(topics), ended_count: topics.length });
  } else if ("id" in command) {
    connection.reply(command, { result: "success", ...("until" in command ? { grace_s: 60 } : {}) });
  }
};

/** Reports, which a test can wait for. */
function telling() {
  const told = [];
  let wake = () => {};
  return {
    told,
    onEnded: (subscriptions, count) => {
      told.push([subscriptions.map(({ topic }) => topic), count]);
      wake();
    },
    next: () => within(new Promise((resolve) => (told.length ? resolve() : (wake = resolve))).then(() => told.shift()), "onEnded"),
  };
}

const terms = (endpoint) =>
  endpoint.frames.all().filter(({ command }) => command === "subscribe").map(({ topic, until, ttl_s }) => [topic, until, ttl_s]);

test("a subscribe says when it ends: what it is told, else what the client is", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, ended());
  const client = await opened(t, endpoint);
  await client.subscribe("a", { until: "disconnect" });
  await client.subscribe(["b"], { ttlS: 60 });
  await client.subscribe("c", { until: "disconnect", ttlS: 5 });
  await client.subscribe("d", { until: null });
  await client.subscribe("e");
  await assert.rejects(client.subscribe("f", { until: "tomorrow" }), { code: "bad_state" });
  await assert.rejects(client.subscribe("f", { ttlS: 0 }), { code: "bad_state" });
  const other = await opened(t, endpoint, { until: "disconnect" });
  await other.subscribe("g");
  await other.subscribe("h", { until: null });
  assert.deepEqual(terms(endpoint), [
    [["a"], "disconnect", undefined],
    [["b"], undefined, 60],
    [["c"], "disconnect", 5],
    [["d"], undefined, undefined],
    [["e"], undefined, undefined],
    [["g"], "disconnect", undefined],
    [["h"], undefined, undefined],
  ]);
  assert.throws(() => new Client(endpoint.url, "c", { until: "plain" }), TypeError);
});

test("a page is where there is a window with a document, and not Node", (t) => {
  assert.equal(browser.Client.isInPage, false);
  globalThis.window = globalThis;
  t.after(() => delete globalThis.window);
  assert.equal(browser.Client.isInPage, false); // a window without a document is not a page
  globalThis.document = {};
  t.after(() => delete globalThis.document);
  assert.equal(browser.Client.isInPage, true);
  assert.equal(Client.isInPage, false);
});

test("what has ended while it was away is subscribed to again, and the rest is told", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, ended());
  const { onEnded, next } = telling();
  const client = await opened(t, endpoint, { onEnded });
  await client.subscribe(["a", "b", "c"], { until: "disconnect" });
  await client.subscribe("plain");
  await client.unsubscribe("b");
  endpoint.frames.all();
  endpoint.script = ended("a", "b", "other");
  endpoint.connection.cut();
  const { topic, until } = await endpoint.next("subscribe");
  assert.deepEqual([topic, until], [["a"], "disconnect"]);
  assert.deepEqual(await next(), [["b", "other"], 2]);
});

test("all is subscribed to again after close code 4007, and after a long absence", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, ended());
  const client = await opened(t, endpoint);
  await client.subscribe(["a", "b"], { until: "disconnect" });
  endpoint.frames.all();
  endpoint.connection.socket.end(closeFrame(4007, "subscriptions have ended"));
  assert.deepEqual((await endpoint.next("subscribe")).topic, ["a", "b"]);
  // A client that slept finds its connection lost. The time when it last heard from the endpoint counts.
  const { now } = Date;
  t.after(() => (Date.now = now));
  await client.listen();
  Date.now = () => now() + 31_000;
  endpoint.connection.cut();
  assert.deepEqual((await endpoint.next("subscribe")).topic, ["a", "b"]);
  await client.listen();
  endpoint.frames.all();
  endpoint.connection.cut();
  await endpoint.next("listen");
  await client.publish("t", 1, { ack: true });
  assert.deepEqual(terms(endpoint), []);
});

test("subscribing again outlasts errors that pass and lost connections, and ends with the client", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, ended());
  const client = await opened(t, endpoint);
  await client.subscribe("a", { until: "disconnect" });
  endpoint.frames.all();
  const tries = [];
  endpoint.script = (connection, command) => {
    if (command.command !== "subscribe") ended()(connection, command);
    else if (tries.push(command) === 1) connection.reply(command, { error: "peer_unavailable", info: "not yet" });
    else if (tries.length === 2) connection.cut();
    else if (tries.length === 3) ended()(connection, command);
  };
  endpoint.connection.socket.end(closeFrame(4007));
  for (let tried = 0; tried < 3; tried++) assert.deepEqual((await endpoint.next("subscribe")).topic, ["a"]);
  await client.publish("t", 1, { ack: true });
  assert.equal(tries.length, 3);
  endpoint.connection.socket.end(closeFrame(4007));
  await endpoint.next("subscribe"); // which nobody answers
  await client.close();
  assert.equal(await client.closed, null);
});

test("what is unsubscribed from meanwhile is not subscribed to again", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, ended());
  const client = await opened(t, endpoint, { backoffMaxMs: 1 });
  await client.subscribe("a", { until: "disconnect" });
  endpoint.script = (connection, command) => {
    if (command.command === "subscribe") connection.reply(command, { error: "peer_unavailable", info: "not now" });
    else if (command.command !== "unsubscribe") ended("a")(connection, command);
  };
  endpoint.connection.cut();
  for (let tried = 0; tried < 3; tried++) await endpoint.next("subscribe");
  const unsubscribing = outcome(client.unsubscribe("a"));
  await endpoint.next("unsubscribe"); // which nobody answers
  for (let number = 0; number < 50; number++) await client.publish("t", number, { ack: true });
  assert.deepEqual(new Set(endpoint.frames.all().map(({ command }) => command)), new Set(["publish"]));
  await client.close();
  assert.equal((await unsubscribing).name, "ClosedForGood");
});

test("what ended before it connected is told, and what is refused now with the reason", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, ended("of an earlier page"));
  const { onEnded, next, told } = telling();
  const codes = [];
  const client = await opened(t, endpoint, { onEnded, onError: (error) => codes.push(error.code) });
  assert.deepEqual(await next(), [["of an earlier page"], 1]);
  await client.listen();
  assert.deepEqual(told.shift(), [["of an earlier page"], 1]);
  await client.subscribe("a", { until: "disconnect" });
  endpoint.script = (connection, command) => {
    if (command.command === "subscribe") connection.reply(command, { error: "forbidden", info: "not any more" });
    else ended("a")(connection, command);
  };
  endpoint.connection.cut();
  assert.deepEqual(await next(), [["a"], 1]);
  assert.deepEqual(codes, ["forbidden"]);
});

test("where more have ended than are named, it listens once more when its own are back", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, ended());
  const { onEnded, next } = telling();
  const client = await opened(t, endpoint, { onEnded });
  await client.subscribe(["a", "b"], { until: "disconnect" });
  endpoint.frames.all();
  const replies = [
    { ended: named(["a"]), ended_count: 1_200 },
    { ended: named(["x"]), ended_count: 1_100 },
  ];
  endpoint.script = (connection, command) => {
    if (command.command === "listen") connection.reply(command, { result: "success", ...replies.shift() });
    else ended()(connection, command);
  };
  endpoint.connection.cut();
  assert.deepEqual((await endpoint.next("subscribe")).topic, ["a", "b"]);
  assert.deepEqual(await next(), [["x"], 1_100]);
});

test("the grace time is the one that the endpoint said last", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, ended());
  const client = await opened(t, endpoint);
  await client.subscribe("a", { until: "disconnect" });
  endpoint.frames.all();
  endpoint.script = (connection, command) =>
    connection.reply(command, { result: "success", ...("until" in command ? { grace_s: 10 } : {}) });
  endpoint.connection.socket.end(closeFrame(4007));
  await endpoint.next("subscribe");
  await client.listen();
  const { now } = Date;
  t.after(() => (Date.now = now));
  Date.now = () => now() + 6_000;
  endpoint.connection.cut();
  assert.deepEqual((await endpoint.next("subscribe")).topic, ["a"]);
});

test("what onEnded throws ends the client", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, ended("x"));
  const client = await opened(t, endpoint, {
    listen: false,
    onEnded: () => {
      throw new RangeError("the program's own");
    },
  });
  await client.listen();
  await assert.rejects(client.subscribe("t"), RangeError);
  await assert.rejects(client.close(), RangeError);
});
