/** Compares checks of texts with Python's results (tests/clients makes and checks vectors.json). */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { ERRORS, ProtocolError } from "../src/errors.js";
import { body, crc32, neighbours, topicBodies } from "../src/requests.js";
import { checkClientId, checkTopic, filterText, json, termFields, utf8Bytes } from "../src/text.js";

const vectors = JSON.parse(readFileSync(new URL("vectors.json", import.meta.url), "utf8"));
const bytes = (text) => new TextEncoder().encode(text);

test("the errors and what to do about them are those of the protocol", () => {
  assert.deepEqual({ ...ERRORS }, vectors.errors);
  assert.equal(new ProtocolError("of_a_newer_endpoint", "").next, "give_up");
  assert.equal(new ProtocolError("toString", "").next, "give_up");
});

test("CRC-32 is zlib's", () => {
  for (const [text, sum] of vectors.crc32) assert.equal(crc32(bytes(text)), sum, text);
});

test("topics are put together and cut as the Python client does it, byte for byte", () => {
  for (const { topics, term, neighbours: order, bodies } of vectors.batches) {
    const fields = termFields(term[0], term[1] ?? undefined);
    assert.deepEqual(neighbours(topics), order.map((index) => topics[index]));
    for (const [limit, digests] of Object.entries(bodies)) {
      const made = topicBodies("subscribe", "c", topics, Number(limit), fields);
      assert.deepEqual(made.map((one) => createHash("sha256").update(one).digest("hex")), digests, made.join("\n"));
      for (const one of made) assert.ok(bytes(`${one},"id":9007199254740991}`).length <= Number(limit));
    }
  }
});

test("when a subscription ends is said as the Python client says it, or refused", () => {
  for (const [until, ttlS, found] of vectors.terms) {
    const make = () => termFields(until, ttlS ?? undefined);
    if (typeof found === "string") assert.throws(make, { code: found }, `${until}, ${ttlS}`);
    else assert.deepEqual(make(), found);
  }
});

test("filters have the same text where they are the same to the Python client", () => {
  for (const [one, text] of vectors.filters) {
    for (const [other, itsText] of vectors.filters) {
      assert.equal(filterText(one) === filterText(other), text === itsText, `${JSON.stringify(one)} ${JSON.stringify(other)}`);
    }
    assert.equal(filterText(JSON.parse(text)), filterText(one));
    assert.equal(filterText(JSON.parse(filterText(one))), filterText(one));
  }
});

test("topics are accepted and refused as an endpoint does it", () => {
  for (const [topic, code] of vectors.topics) {
    if (code === null) assert.equal(checkTopic(topic), topic);
    else assert.throws(() => checkTopic(topic), { name: "ProtocolError", code, next: "fix" }, JSON.stringify(topic));
  }
  assert.throws(() => checkTopic("\ud800"), { code: "bad_topic" });
  assert.throws(() => checkTopic(7), { code: "bad_state" });
});

test("client ids are strings of 1 to 128 bytes, or safe integers", () => {
  for (const good of ["a", "é".repeat(64), 0, -7, Number.MAX_SAFE_INTEGER]) assert.equal(checkClientId(good), good);
  for (const bad of ["", "é".repeat(65), 1.5, 2 ** 53, NaN, true, null, undefined, 1n, "\udc00"]) {
    assert.throws(() => checkClientId(bad), TypeError, String(bad));
  }
});

test("bytes are counted as UTF-8 has them", () => {
  for (const text of ["", "abc", "é", "\u0800☃", "😀 and 😀", "\u07ff\u0800\uffff"]) {
    assert.equal(utf8Bytes(text), bytes(text).length, text);
  }
});

test("what an endpoint could not read is refused here, for its answer would carry no id", () => {
  const deep = (levels) => JSON.parse("[".repeat(levels) + "]".repeat(levels));
  const cycle = [];
  cycle.push(cycle);
  assert.equal(json(deep(250)), "[".repeat(250) + "]".repeat(250));
  for (const bad of [deep(251), { a: [deep(250)] }, undefined, () => 1, 1n, cycle, "\ud800", { "x\udc00": 1 }]) {
    assert.throws(() => json(bad), { name: "ProtocolError", code: "bad_json", next: "fix" });
  }
  for (const good of ["\\ud800", "\\\\udc00", `${"[".repeat(600)}`, "😀", '"[{'.repeat(300)]) {
    assert.equal(JSON.parse(json(good)), good);
  }
});

test("integers beyond 64 bits are written as the doubles they are", () => {
  assert.equal(json(1e20), "100000000000000000000.0");
  // The shortest text that reads as -2^63 is below it.
  assert.equal(json([-(2 ** 64), -(2 ** 63)]), "[-18446744073709552000.0,-9223372036854776000.0]");
  for (const within of [2 ** 63, -9223372036854774784, 18446744073709549568]) assert.equal(json(within), JSON.stringify(within));
  assert.equal(json({ "1": "100000000000000000000", b: [1e20, 1e21, 0.1] }),
    '{"1":"100000000000000000000","b":[100000000000000000000.0,1e+21,0.1]}');
});

test("a command over the message limit is refused", () => {
  assert.throws(() => body("publish", "c", { payload: "x".repeat(3000) }, 3000), { code: "too_large" });
  assert.throws(() => body("publish", "c", { payload: "é".repeat(1000) }, 3000), { code: "too_large" });
  assert.ok(body("publish", "c", { payload: "é".repeat(900) }, 3000));
});
