/** The subscriptions that a client has to renew. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { AGAIN_TOPICS_MAX, Kept } from "../src/kept.js";

const UNTIL = { until: "disconnect" };
const NOW = 1_800_000_000_000;
const at = (seconds) => NOW + seconds * 1_000;

const CHEAP = '{"price":[1]}';
const NEAR = '{"zip":["81"]}';

/** Return a reply that names these topics, or topics with filters, as ended. */
const reply = (...ended) => ({
  ended: ended.map((one) => (typeof one === "string" ? { topic: one } : { topic: one[0], filter: JSON.parse(one[1]) })),
  ended_count: ended.length,
});
const told = (...topics) => topics.map((topic) => ({ topic }));

/** Return the list of a client that has listened since second 0, and has subscribed to the topics. */
function kept(...topics) {
  const found = new Kept();
  found.graceMs = 60_000;
  assert.equal(found.listened({}, at(0), false), null);
  found.subscribed(topics, undefined, undefined, at(0));
  return found;
}

function allDue(found, nowMs) {
  const due = [];
  for (let again; (again = found.take(nowMs)) !== null; ) {
    due.push(...again.topics.map((topic) => (again.filter === undefined ? topic : [topic, again.filter])));
  }
  return due;
}

test("nothing is due after a short absence, and all after half of the grace time", () => {
  const found = kept("a", "b");
  found.left(at(100));
  found.listened({}, at(130), false);
  assert.equal(found.isDue, false);
  found.left(at(200));
  found.listened({}, at(230.1), false);
  assert.deepEqual(allDue(found, at(230.1)), ["a", "b"]);
  found.left(at(300));
  found.listened({}, at(200), false); // the clock was set back, so it does not say how long the client was away
  assert.deepEqual(allDue(found, at(200)), ["a", "b"]);
  found.left(-Infinity);
  found.listened({}, at(201), false);
  assert.deepEqual(allDue(found, at(201)), ["a", "b"]);
});

test("what has ended is due where it is the client's own, and told where not", () => {
  const found = kept("a", "b");
  found.left(at(10));
  assert.deepEqual(found.listened(reply("b", "x"), at(11), false), { subscriptions: told("x"), count: 1 });
  assert.deepEqual(found.take(at(11)), { topics: ["b"], fields: UNTIL });
  assert.equal(found.take(at(11)), null);
  for (const bad of [{ ended: 1 }, { ended: [1, null, "a", { topic: "a", filter: 1 }] }, { ended: {}, ended_count: "x" }]) {
    assert.equal(found.listened(bad, at(12), false), null);
  }
});

test("what has ended with a filter is due with this filter, and never without", () => {
  const found = kept("a", "b");
  found.subscribed(["b", "a"], CHEAP, undefined, at(0));
  found.subscribed(["b"], NEAR, 100, at(0));
  found.left(at(10));
  const named = reply(["b", CHEAP], "b", ["b", NEAR], ["a", CHEAP], ["a", NEAR], ["c", CHEAP]);
  const others = [{ topic: "a", filter: { zip: ["81"] } }, { topic: "c", filter: { price: [1] } }];
  assert.deepEqual(found.listened(named, at(11), false), { subscriptions: others, count: 2 });
  assert.deepEqual([1, 2, 3, 4].map(() => found.take(at(20))), [
    { topics: ["b", "a"], filter: CHEAP, fields: { filter: { price: [1] }, ...UNTIL } },
    { topics: ["b"], fields: UNTIL },
    { topics: ["b"], filter: NEAR, fields: { filter: { zip: ["81"] }, ...UNTIL, ttl_s: 80 } },
    null,
  ]);
  found.out(["b"], CHEAP);
  found.gone(["a"]);
  found.left(at(21));
  found.listened({}, at(90), false);
  const again = found.take(at(90));
  found.putBack(again);
  assert.deepEqual(allDue(found, at(90)), ["b", ["b", NEAR]]);
  assert.deepEqual(found.topics, ["b", "b"]);
  found.gone(["b"]);
  assert.equal(found.size, 0);
});

test("who has never listened is away since the first subscribe", () => {
  const found = new Kept();
  found.graceMs = 60_000;
  found.subscribed(["a"], undefined, undefined, at(5));
  found.subscribed(["b"], undefined, undefined, at(35));
  found.listened({}, at(36), false);
  assert.deepEqual(allDue(found, at(36)), ["a", "b"]);
});

test("a subscribe of several commands during which it was away is made again", () => {
  const found = kept("a");
  found.left(at(10));
  found.listened({}, at(20), false);
  found.subscribed(["b"], undefined, undefined, at(21));
  assert.equal(found.isDue, false);
  found.subscribed(["c", "d"], undefined, undefined, at(22), at(9));
  assert.deepEqual(allDue(found, at(22)), ["c", "d"]);
  const slow = new Kept();
  slow.graceMs = 60_000;
  slow.subscribed(["a"], undefined, undefined, at(50), at(5));
  slow.listened({}, at(51), false);
  assert.deepEqual(allDue(slow, at(51)), ["a"]);
});

test("what is due stays so until it is taken, unless it is unsubscribed from", () => {
  const found = kept("a", "b", "c");
  found.left(at(0));
  found.listened({}, at(100), false);
  found.putBack(found.take(at(100)));
  found.gone(["a"]);
  found.left(at(101));
  assert.deepEqual(found.listened(reply("c", "a"), at(102), false), { subscriptions: told("a"), count: 1 });
  assert.deepEqual(allDue(found, at(102)), ["b", "c"]);
});

test("a time to live goes on, and is over when it is", () => {
  const found = kept();
  found.subscribed(["a", "b"], undefined, 100, at(0));
  found.subscribed(["c"], undefined, 500, at(0));
  found.subscribed(["d"], undefined, undefined, at(0));
  found.left(at(0));
  assert.equal(found.listened(reply("a", "b", "c", "d"), at(60.5), false), null);
  assert.deepEqual([1, 2, 3, 4].map(() => found.take(at(60.5))), [
    { topics: ["a", "b"], fields: { ...UNTIL, ttl_s: 40 } },
    { topics: ["c"], fields: { ...UNTIL, ttl_s: 440 } },
    { topics: ["d"], fields: UNTIL },
    null,
  ]);
  assert.equal(found.size, 4);
  assert.deepEqual(found.listened(reply("a", "c"), at(100), false), { subscriptions: told("a"), count: 1 });
  assert.equal(found.size, 3);
  assert.deepEqual(allDue(found, at(100)), ["c"]);
  let most = 0;
  for (let second = 1_000; second < 20_000; second++) {
    found.subscribed([`topic ${second}`], [undefined, CHEAP][second % 2], 10, at(second));
    most = Math.max(most, found.size);
  }
  assert.ok(most <= 1_001, String(most));
});

test("where more have ended than are named, it is said when the own ones are back", () => {
  const found = kept("a", "b");
  assert.equal(found.listened({ ...reply("b", "x"), ended_count: 1_500 }, at(1), false), null);
  assert.equal(found.isUnsure, true);
  assert.deepEqual(allDue(found, at(1)), ["a", "b"]);
  const named = { ...reply("x", "y"), ended_count: 1_400 };
  assert.deepEqual(found.listened(named, at(2), true), { subscriptions: told("x", "y"), count: 1_400 });
  assert.deepEqual([found.isUnsure, found.isDue], [false, false]);
});

test("many are taken in commands of neighbours", () => {
  const topics = Array.from({ length: 2 * AGAIN_TOPICS_MAX + 1 }, (_, number) => `topic ${number}`);
  const found = kept(...topics);
  found.left(-Infinity);
  found.listened({}, at(1), false);
  const first = found.take(at(1));
  assert.equal(first.topics.length, AGAIN_TOPICS_MAX);
  const rest = allDue(found, at(1));
  assert.deepEqual([...first.topics, ...rest].sort(), [...topics].sort());
  assert.notDeepEqual([...first.topics, ...rest], topics);
});
