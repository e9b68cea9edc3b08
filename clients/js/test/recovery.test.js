/** Tests how a client gets missed messages and gaps, with scripted endpoints. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../src/node.js";
import { MIDS_MAX, Marks, Recovery, markOf } from "../src/recovery.js";
import { slotOf } from "../src/requests.js";
import { within } from "./endpoints.js";
import { ScriptedEndpoint, closeFrame, text } from "./scripted.js";

const outcome = (promise) => promise.then((value) => value, (error) => error);

/** Return a script of an endpoint that recovers. A client without a position gets `position`. */
const recovering = (position, more = {}) => (connection, command) => {
  if (command.command === "listen") {
    const isBehind = typeof command.recover === "string";
    connection.reply(command, { result: "success", recovering: isBehind, ...(isBehind ? {} : { position }), ...more });
  } else if ("id" in command) {
    connection.reply(command, { result: "success", ...("until" in command ? { grace_s: 60 } : {}) });
  }
};

async function opened(t, endpoint, options = {}) {
  const client = new Client(endpoint.url, "c1", { timeoutMs: 20_000, backoffBaseMs: 1, listen: true, ...options });
  t.after(() => client.close().catch(() => {}));
  await client.connect();
  return client;
}

const message = (connection, key, broadcast, mid, more = {}) => connection.send(text({ key, broadcast, mid, ...more }));
const position = (connection, at) => connection.send(text({ position: at }));
const gap = (connection, lacking) => connection.send(text({ gap: lacking }));

/** Collects values in the order in which a handler gets them. A test can wait for the next value. */
function telling() {
  const told = [];
  let wake = () => {};
  const put = (value) => {
    told.push(value);
    wake();
  };
  const upTo = async (count) => {
    while (told.length < count) await within(new Promise((resolve) => (wake = resolve)), `${count} values: ${told}`);
    return told;
  };
  return { told, put, upTo };
}

/** Make a round trip, so that everything that the endpoint sent before has arrived. */
const settled = (client) => client.publish("a round trip", 1, { ack: true, dedup: "retry" });

function localStorage(t, kept = {}) {
  const storage = { kept, getItem: (key) => kept[key] ?? null, setItem: (key, value) => void (kept[key] = value) };
  const before = Object.getOwnPropertyDescriptor(globalThis, "localStorage");
  Object.defineProperty(globalThis, "localStorage", { configurable: true, value: storage });
  t.after(() => {
    delete globalThis.localStorage;
    if (before !== undefined) Object.defineProperty(globalThis, "localStorage", before);
  });
  return storage;
}

// -- the position

test("it listens with `recover`, and after a lost connection with the position that came last", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const client = await opened(t, endpoint, { recover: true, onNotification: () => {} });
  assert.deepEqual((await endpoint.next("listen")).recover, true);
  assert.equal(client.position, "p1");
  position(endpoint.connection, "p2");
  await settled(client);
  assert.equal(client.position, "p2");
  endpoint.connection.cut();
  assert.equal((await endpoint.next("listen")).recover, "p2");
  await settled(client);
  position(endpoint.connection, "p3");
  await settled(client);
  await client.unlisten();
  await client.listen();
  assert.equal((await endpoint.next("listen")).recover, "p3");
});

test("a position in the reply of an endpoint that recovers it holds when that is done", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1", { recovering: true, position: "p9" }));
  const client = await opened(t, endpoint, { recover: "saved", onNotification: () => {} });
  await settled(client);
  assert.equal(client.position, "saved");
  endpoint.connection.send(text({ position: "p9", recovered: true }));
  await settled(client);
  assert.equal(client.position, "p9");
});

test("a position that a program has saved is where it begins; without `recover` a listen has none", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const client = await opened(t, endpoint, { recover: "saved" });
  assert.equal((await endpoint.next("listen")).recover, "saved");
  assert.equal(client.position, "saved");
  const plain = await opened(t, endpoint);
  assert.ok(!("recover" in (await endpoint.next("listen"))));
  assert.equal(plain.position, null);
});

test("a position is reached when the program has processed what came before it: by iterating", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const client = await opened(t, endpoint, { recover: true });
  for (const number of [1, 2]) message(endpoint.connection, "t", number, `o.${number}`);
  position(endpoint.connection, "p2");
  message(endpoint.connection, "t", 3, "o.3");
  await settled(client);
  const seen = [];
  for await (const { broadcast, mid, kept } of client) {
    seen.push([broadcast, mid, kept, client.position]);
    if (broadcast === 3) break;
  }
  assert.deepEqual(seen, [
    [1, "o.1", undefined, "p1"],
    [2, "o.2", undefined, "p1"],
    [3, "o.3", undefined, "p2"],
  ]);
});

test("a position is reached when an async handler is done with what came before it", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  let done;
  const got = [];
  const client = await opened(t, endpoint, {
    recover: true,
    onNotification: (key, broadcast, { mid, kept }) => {
      got.push([key, broadcast, mid, kept]);
      return new Promise((resolve) => (done = resolve));
    },
  });
  message(endpoint.connection, "t", 1, "o.1", { kept: true });
  position(endpoint.connection, "p2");
  await settled(client);
  assert.equal(client.position, "p1");
  done();
  await settled(client);
  assert.equal(client.position, "p2");
  assert.deepEqual(got, [["t", 1, "o.1", true]]);
});

test("a position that came during a failing handler is not reached", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const storage = localStorage(t);
  const client = await opened(t, endpoint, {
    recover: { key: "k" },
    onNotification: async () => {
      throw new RangeError("the program's own");
    },
  });
  endpoint.connection.send(Buffer.concat([text({ key: "t", broadcast: 1, mid: "o.1" }), text({ position: "p2" })]));
  assert.equal((await within(client.closed, "the end")).name, "RangeError");
  assert.deepEqual(storage.kept, { k: "p1" });
});

test("with a key the position is saved in localStorage, and read from there", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const storage = localStorage(t);
  const first = await opened(t, endpoint, { recover: { key: "news" }, onNotification: () => {} });
  assert.equal((await endpoint.next("listen")).recover, true);
  assert.deepEqual(storage.kept, { news: "p1" });
  position(endpoint.connection, "p2");
  await settled(first);
  await first.close();
  assert.deepEqual(storage.kept, { news: "p2" });
  await opened(t, endpoint, { recover: { key: "news" } });
  assert.equal((await endpoint.next("listen")).recover, "p2");
});

test("what is no position in localStorage is a gap, and a full localStorage is said once", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const storage = localStorage(t, { news: "x".repeat(129) });
  storage.setItem = () => {
    throw new Error("QuotaExceededError");
  };
  const warn = t.mock.method(console, "warn", () => {});
  const { told, put } = telling();
  const client = await opened(t, endpoint, { recover: { key: "news" }, onGap: put, onNotification: () => {} });
  position(endpoint.connection, "p2");
  await settled(client);
  assert.deepEqual(told, [{ topics: null }]);
  assert.equal((await endpoint.next("listen")).recover, true);
  assert.equal(client.position, "p2");
  assert.equal(warn.mock.callCount(), 1);
  assert.match(warn.mock.calls[0].arguments[0], /cannot save position news.*QuotaExceeded/);
});

test("what cannot recover is refused when the client is made", () => {
  for (const recover of ["", "é".repeat(65), 1, {}, { key: "" }, { key: 1 }, []]) {
    assert.throws(() => new Client("ws://127.0.0.1:9/", "c", { recover }), TypeError, String(recover));
  }
  // Node has no localStorage by default.
  assert.throws(() => new Client("ws://127.0.0.1:9/", "c", { recover: { key: "k" } }), /needs localStorage/);
});

test("without a position the client cannot know what it has missed: any topic", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering(undefined));
  const { told, put } = telling();
  const client = await opened(t, endpoint, { recover: true, onGap: put, onNotification: () => {} });
  await settled(client);
  assert.deepEqual(told, []);
  endpoint.connection.cut();
  await endpoint.next("listen");
  assert.equal((await endpoint.next("listen")).recover, true);
  await settled(client);
  assert.deepEqual(told, [{ topics: null }]);
  await client.listen();
  await settled(client);
  assert.equal(told.length, 1);
});

// -- repeats

test("a message that comes again is dropped and counted, on another connection, too", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const { told, put, upTo } = telling();
  const client = await opened(t, endpoint, { recover: true, onNotification: (key, broadcast) => put(broadcast) });
  message(endpoint.connection, "t", 1, "o.1");
  message(endpoint.connection, "t", 2, "o.2");
  message(endpoint.connection, "t", 1, "o.1", { kept: true });
  await settled(client);
  endpoint.connection.cut();
  await endpoint.connection.closed;
  await settled(client);
  message(endpoint.connection, "t", 2, "o.2", { kept: true });
  message(endpoint.connection, "t", 3, "o.3");
  endpoint.connection.notify("t", 4); // from an endpoint that gives no mid
  endpoint.connection.notify("t", 4);
  assert.deepEqual(await upTo(5), [1, 2, 3, 4, 4]);
  assert.equal(client.repeats, 2);
  assert.equal(told.length, 5);
});

test("the latest 10,000 mids are remembered, and no more", () => {
  const recovery = new Recovery(true);
  for (let number = 0; number < MIDS_MAX; number++) assert.equal(recovery.isRepeat(`o.${number}`), false);
  assert.equal(recovery.isRepeat("o.0"), true);
  assert.equal(recovery.isRepeat("another"), false);
  assert.equal(recovery.isRepeat("o.1"), true);
  assert.equal(recovery.isRepeat("o.0"), false);
  assert.equal(recovery.repeats, 2);
});

test("without `recover` nothing is dropped: what is asked for twice comes twice", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const { put, upTo } = telling();
  await opened(t, endpoint, { onNotification: (key, broadcast) => put(broadcast) });
  for (let time = 0; time < 2; time++) message(endpoint.connection, "t", 1, "o.1", { kept: true });
  position(endpoint.connection, "p1");
  message(endpoint.connection, "t", 2, "o.2");
  assert.deepEqual(await upTo(3), [1, 1, 2]);
});

// -- gaps

test("gaps are told in their turn, and what comes next waits for the handler", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const { told, put, upTo } = telling();
  let done;
  const client = await opened(t, endpoint, {
    recover: true,
    onNotification: (key, broadcast) => put(broadcast),
    onGap: ({ topics }) => {
      put(topics);
      return new Promise((resolve) => (done = resolve));
    },
  });
  message(endpoint.connection, "t", 1, "o.1");
  gap(endpoint.connection, { topics: ["b", "a"] });
  message(endpoint.connection, "a", 2, "o.2");
  position(endpoint.connection, "p2");
  gap(endpoint.connection, null);
  await upTo(2);
  await settled(client);
  assert.deepEqual(told, [1, ["b", "a"]]);
  assert.equal(client.position, "p1");
  done();
  assert.deepEqual(await upTo(4), [1, ["b", "a"], 2, null]);
  done();
  await settled(client);
  assert.equal(client.position, "p2");
});

test("a gap and a position in one message are both heeded", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const { told, put } = telling();
  const client = await opened(t, endpoint, { recover: true, onGap: put, onNotification: () => {} });
  endpoint.connection.send(text({ position: "p2", gap: { topics: ["a"] } }));
  await settled(client);
  assert.deepEqual([told, client.position], [[{ topics: ["a"] }], "p2"]);
});

test("gaps are told to whoever iterates, before what comes behind them", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const order = [];
  const client = await opened(t, endpoint, { recover: true, onGap: async ({ topics }) => order.push(topics) });
  message(endpoint.connection, "t", 1, "o.1");
  gap(endpoint.connection, { topics: ["t"] });
  message(endpoint.connection, "t", 2, "o.2");
  await settled(client);
  assert.deepEqual(order, []);
  for await (const { broadcast } of client) if (order.push(broadcast) === 3) break;
  assert.deepEqual(order, [1, ["t"], 2]);
});

test("slots are told as the client's own topics in them", async (t) => {
  const topics = Array.from({ length: 50 }, (_, number) => `topic ${number}`);
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if (command.command !== "subscriptions") return recovering("p1")(connection, command);
    const [from, to, cursor] = command.cursor === undefined ? [0, 25, "next"] : [25, 50, null];
    connection.reply(command, { result: "success", topic: topics.slice(from, to), cursor });
  });
  const { put, upTo } = telling();
  const client = await opened(t, endpoint, { recover: true, onGap: put, onNotification: () => {} });
  await client.subscribe("of this page", { until: "disconnect" });
  gap(endpoint.connection, { topics: ["named"], slots: [slotOf("topic 7"), slotOf("topic 31"), slotOf("of this page")] });
  const [{ topics: told }] = await upTo(1);
  assert.deepEqual(told.toSorted(), ["named", "of this page", "topic 31", "topic 7"]);
});

test("slots are told as any topic where the client's own cannot be asked for", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if (command.command !== "subscriptions") recovering("p1")(connection, command);
    else connection.reply(command, { error: "forbidden", info: "no" });
  });
  const { put, upTo } = telling();
  await opened(t, endpoint, { recover: true, onGap: put, onNotification: () => {} });
  gap(endpoint.connection, { slots: [7] });
  assert.deepEqual(await upTo(1), [{ topics: null }]);
});

test("a gap that comes with the reply to the first `listen` is told with its topics", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if (command.command === "subscriptions") connection.reply(command, { result: "success", topic: ["a", "b"] });
    else if (command.command === "listen") {
      const reply = text({ result: "success", recovering: true, id: command.id });
      connection.send(Buffer.concat([reply, text({ gap: { slots: [slotOf("b")] } })]));
    }
  });
  const { put, upTo } = telling();
  await opened(t, endpoint, { recover: "saved", onGap: put, onNotification: () => {} });
  assert.deepEqual(await upTo(1), [{ topics: ["b"] }]);
});

test("with `overflow: pause` a gap does not wait for a reply that is not read", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    if (command.command !== "subscriptions") recovering("p1")(connection, command);
  });
  const order = [];
  const client = await opened(t, endpoint, {
    ...{ recover: true, overflow: "pause", queueMax: 4, timeoutMs: 600_000 },
    onGap: ({ topics }) => void order.push(topics),
  });
  let sent = 0;
  const fill = () => {
    for (const end = sent + 8; sent < end; sent++) message(endpoint.connection, "t", sent, `o.${sent}`);
  };
  const take = async (count) => {
    for await (const { broadcast } of client) if (order.push(broadcast) === count) break;
  };
  // The queue fills while the client looks up its topics.
  const taken = take(9);
  gap(endpoint.connection, { slots: [7] });
  await endpoint.next("subscriptions");
  fill();
  await within(taken, "what comes behind the gap");
  // The queue is already full.
  gap(endpoint.connection, { slots: [7] });
  fill();
  while (client.queued < 4) await new Promise(setImmediate);
  await within(take(18), "what comes behind the other gap");
  assert.deepEqual(order, [null, 0, 1, 2, 3, 4, 5, 6, 7, null, 8, 9, 10, 11, 12, 13, 14, 15]);
});

test("what the full queue drops is a gap of its topics, and no position hides it", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const order = [];
  const dropped = [];
  const client = await opened(t, endpoint, {
    ...{ recover: true, queueMax: 2 },
    onGap: ({ topics }) => void order.push(topics.toSorted()),
    onDropped: ({ key }) => void dropped.push(key),
  });
  for (const [number, key] of ["a", "b", "c", "d"].entries()) message(endpoint.connection, key, key, `o.${number}`);
  position(endpoint.connection, "p2");
  await settled(client);
  for await (const { key } of client) if (order.push(key) === 3) break;
  assert.deepEqual(order, [["a", "b"], "c", "d"]);
  assert.deepEqual(dropped, ["a", "b"]);
});

test("without a handler a gap is said in the console; what the handler throws ends the client", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const warn = t.mock.method(console, "warn", () => {});
  const silent = await opened(t, endpoint, { recover: true, onNotification: () => {} });
  gap(endpoint.connection, { topics: ["a"] });
  await settled(silent);
  assert.match(warn.mock.calls[0].arguments[0], /messages of a may be missing: see onGap/);
  const failing = () => {
    throw new RangeError("the program's own");
  };
  for (const handlers of [{ onNotification: () => {} }, {}]) {
    const client = await opened(t, endpoint, { recover: true, onGap: failing, ...handlers });
    const notes = handlers.onNotification ? null : client.notifications();
    const iterated = notes?.next();
    const behind = [{ position: "p2" }, { key: "t", broadcast: 1, mid: "o.1" }, { position: "p3" }];
    endpoint.connection.send(Buffer.concat([{ gap: null }, ...behind].map(text)));
    await within(client.closed, "the end");
    if (notes !== null) {
      assert.equal((await iterated).value.broadcast, 1); // the message arrived before the end
      await assert.rejects(notes.next(), RangeError);
    }
    await assert.rejects(client.close(), RangeError);
    assert.equal(client.position, "p1");
  }
});

for (const [what, bad] of [
  ["a position that is none", { position: "" }],
  ["a position that is none beside a gap", { position: 7, gap: null }],
  ["a long position", { position: "x".repeat(129) }],
  ["a gap of something", { gap: "t" }],
  ["a gap of topics that are none", { gap: { topics: [1] } }],
  ["a gap of slots that are none", { gap: { slots: [4096] } }],
  ["a mid that is no string", { key: "t", broadcast: 1, mid: 7 }],
]) {
  test(`${what} costs the endpoint the connection`, async (t) => {
    const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
    const { put, upTo } = telling();
    await opened(t, endpoint, { recover: true, onLost: put });
    endpoint.connection.send(text(bad));
    await upTo(1);
    assert.equal(endpoint.connections[0].closeCode, 1002);
  });
}

test("marks with the same place are one, and none is due before its time", () => {
  const marks = new Marks();
  const gapOf = (...topics) => markOf({ gap: { topics } }).gap;
  for (let number = 0; number < 1_000; number++) marks.add({ after: 2, position: `p${number}` });
  marks.add({ after: 2, gap: gapOf("a") });
  marks.add({ after: 2, gap: gapOf("b") });
  marks.add({ after: 3, gap: null });
  assert.equal(marks.length, 2);
  assert.equal(marks.take(1), undefined);
  marks.addFirst({ after: 1, gap: gapOf("dropped") });
  assert.deepEqual([...marks.take(1).gap.topics], ["dropped"]);
  const { gap: lacking, position: at } = marks.take(2);
  assert.deepEqual([[...lacking.topics], at], [["a", "b"], "p999"]);
  assert.deepEqual(marks.take(3), { after: 3, gap: null });
  assert.equal(marks.length, 0);
  marks.add({ after: 5, gap: gapOf(...Array.from({ length: 9_999 }, (_, number) => `${number}`)) });
  marks.add({ after: 5, gap: gapOf("x", "y") });
  assert.equal(marks.take(5).gap, null); // more topics than one gap names
});

// -- where there is no history

test("endpoints that keep nothing refuse: that is told, at once or when it connects again", async (t) => {
  const refusing = (connection, command) => connection.reply(command, { error: "bad_state", info: "no history here" });
  const endpoint = await ScriptedEndpoint.start(t, refusing);
  await assert.rejects(opened(t, endpoint, { recover: true }), { code: "bad_state", info: "no history here" });
  endpoint.script = recovering("p1");
  const client = await opened(t, endpoint, { recover: true });
  const iterated = outcome(client.notifications().next());
  endpoint.script = refusing;
  endpoint.connection.cut();
  assert.equal((await within(client.closed, "the end")).code, "bad_state");
  assert.equal((await iterated).code, "bad_state");
  assert.equal(endpoint.connections.length, 3);
});

// -- subscriptions that ended meanwhile

test("what has ended is subscribed to again since the position, and no later one holds before it is back", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const storage = localStorage(t);
  const { told, put } = telling();
  const client = await opened(t, endpoint, { recover: { key: "k" }, onEnded: put, onNotification: () => {} });
  await client.subscribe(["a", "b"], { until: "disconnect" });
  position(endpoint.connection, "p2");
  await settled(client);
  endpoint.frames.all();
  let held;
  endpoint.script = (connection, command) => {
    if (command.command === "subscribe") held = command;
    else recovering("p1", { ended: [{ topic: "a" }, { topic: "other" }], ended_count: 2 })(connection, command);
  };
  endpoint.connection.cut();
  assert.equal((await endpoint.next("listen")).recover, "p2");
  const { topic, since, until } = await endpoint.next("subscribe");
  assert.deepEqual([topic, since, until], [["a"], "p2", "disconnect"]);
  assert.deepEqual(told, [[{ topic: "other" }]]);
  position(endpoint.connection, "p3");
  await settled(client);
  assert.deepEqual([client.position, storage.kept.k], ["p2", "p2"]);
  // The connection breaks again. The client still requests everything since the first position.
  endpoint.connection.cut();
  assert.equal((await endpoint.next("listen")).recover, "p2");
  assert.equal((await endpoint.next("subscribe")).since, "p2");
  position(endpoint.connection, "p4");
  await settled(client);
  assert.equal(client.position, "p2");
  endpoint.script = recovering("p1");
  endpoint.connection.reply(held, { result: "success", grace_s: 60 });
  // The client renews the subscription twice, because it was due when the connection broke. The endpoint answers now.
  for (let tries = 0; tries < 50 && client.position !== "p4"; tries++) await settled(client);
  assert.deepEqual([client.position, storage.kept.k], ["p4", "p4"]);
});

test("what is subscribed to again while it does not listen is not asked for", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const client = await opened(t, endpoint, { recover: true, backoffMaxMs: 1, onNotification: () => {} });
  await client.subscribe("a", { until: "disconnect" });
  endpoint.script = (connection, command) => {
    if (command.command === "subscribe") connection.reply(command, { error: "peer_unavailable", info: "not now" });
    else recovering("p1", { ended: [{ topic: "a" }], ended_count: 1 })(connection, command);
  };
  endpoint.frames.all();
  endpoint.connection.cut();
  assert.equal((await endpoint.next("subscribe")).since, "p1");
  await client.unlisten();
  endpoint.frames.all();
  await endpoint.next("subscribe"); // this command may have left before `unlisten`
  assert.ok(!("since" in (await endpoint.next("subscribe"))));
});

test("a position that comes with the reply to `listen` does not hide what has ended", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, recovering("p1"));
  const client = await opened(t, endpoint, { recover: true, onNotification: () => {} });
  await client.subscribe("a", { until: "disconnect" });
  endpoint.frames.all();
  endpoint.script = (connection, command) => {
    if (command.command !== "listen") return;
    const reply = { result: "success", recovering: true, ended: [{ topic: "a" }], ended_count: 1, id: command.id };
    connection.send(Buffer.concat([text(reply), text({ position: "p2", recovered: true })]));
  };
  endpoint.connection.socket.end(closeFrame(4007));
  assert.equal((await endpoint.next("subscribe")).since, "p1");
});

// -- commands

test("writes what asks for kept messages", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    const page = { publications: [{ broadcast: 1, mid: "o.1" }], mid: "o.1", more: true, recovered: true };
    if ("id" in command) connection.reply(command, { result: "success", grace_s: 60, ...page });
  });
  const client = await opened(t, endpoint);
  await client.publish("t", 1, { ack: true, keepS: 60 });
  await client.publishMany([["t", 2]], { keepS: 86_400, dedup: false });
  await client.subscribe("t", { last: 10 });
  await client.subscribe("t", { since: "p1", until: "disconnect" });
  await client.subscribe("t", { last: 1, filter: { a: [1] } });
  const page = await client.history("t");
  assert.deepEqual(page, { publications: [{ broadcast: 1, mid: "o.1" }], mid: "o.1", more: true, recovered: true });
  await client.history("t", { since: "o.1", limit: 1_000, filter: { a: [1] } });
  await client.history("t", { last: 5 });
  assert.deepEqual(endpoint.frames.all().slice(1).map(({ id: _, client_id: __, ...rest }) => rest), [
    { command: "publish", topic: "t", payload: 1, keep_s: 60, ack: true },
    { command: "publish", topic: "t", payload: 2, keep_s: 86_400, dedup: false },
    { command: "subscribe", last: 10, topic: ["t"] },
    { command: "subscribe", until: "disconnect", since: "p1", topic: ["t"] },
    { command: "subscribe", filter: { a: [1] }, last: 1, topic: ["t"] },
    { command: "history", topic: "t" },
    { command: "history", topic: "t", since: "o.1", limit: 1_000, filter: { a: [1] } },
    { command: "history", topic: "t", last: 5 },
  ]);
});

test("refuses what an endpoint would, before anything is sent", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint, { listen: false });
  for (const keepS of [0, 86_401, 1.5, "60", null]) {
    await assert.rejects(client.publish("t", 1, { keepS }), { code: "bad_state", info: /keep_s/ });
    await assert.rejects(client.publishMany([["t", 1]], { keepS }), { code: "bad_state" });
  }
  for (const options of [{ last: 0 }, { last: 1_001 }, { last: "1" }, { since: "" }, { since: 7 }, { last: 1, since: "p" }]) {
    await assert.rejects(client.subscribe("t", options), { code: "bad_state" }, JSON.stringify(options));
    await assert.rejects(client.history("t", options), { code: "bad_state" }, JSON.stringify(options));
  }
  for (const limit of [0, 1_001]) await assert.rejects(client.history("t", { limit }), { code: "bad_state" });
  await assert.rejects(client.history("t", { filter: 1 }), TypeError);
  await assert.rejects(client.history(""), { code: "bad_topic" });
  assert.deepEqual(endpoint.frames.all(), []);
});

test("more than 1,000 topics whose kept messages are asked for are several commands", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t);
  const client = await opened(t, endpoint);
  const topics = Array.from({ length: 2_500 }, (_, number) => `topic ${number}`);
  await client.subscribe(topics, { last: 1 });
  await client.subscribe(topics);
  const commands = endpoint.frames.all().slice(1);
  assert.deepEqual(commands.map(({ topic, last }) => [topic.length, last]), [
    [1_000, 1],
    [1_000, 1],
    [500, 1],
    [2_500, undefined],
  ]);
  assert.equal(new Set(commands.slice(0, 3).flatMap(({ topic }) => topic)).size, 2_500);
});

test("a history without messages has no mid", async (t) => {
  const endpoint = await ScriptedEndpoint.start(t, (connection, command) => {
    connection.reply(command, { result: "success", publications: [], mid: null, more: false, recovered: false });
  });
  const client = await opened(t, endpoint, { listen: false });
  assert.deepEqual(await client.history("t", { since: "o.1" }), { publications: [], mid: null, more: false, recovered: false });
});
