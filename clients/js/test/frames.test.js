/** Tests that the client reads frames of RFC 6455 in any pieces, and refuses invalid frames. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { FrameReader, frame } from "../src/frames.js";
import { closeFrame, serverFrame } from "./scripted.js";

function read(bytes, { piece = bytes.length, max = 1 << 20 } = {}) {
  const heard = [];
  const reader = new FrameReader(max, {
    message: (text) => heard.push(text),
    ping: (payload) => heard.push(["ping", payload.toString()]),
    pong: () => heard.push(["pong"]),
    close: (code, reason) => heard.push(["close", code, reason]),
  });
  for (let at = 0; at < bytes.length; at += piece) reader.push(bytes.subarray(at, at + piece));
  return heard;
}

const long = "é☃😀".repeat(10_000);
const TALK = Buffer.concat([
  serverFrame(0x81, "one"),
  serverFrame(0x81, ""),
  serverFrame(0x89, "are you there"),
  serverFrame(0x01, "frag"),
  serverFrame(0x8a),
  serverFrame(0x00, ""),
  serverFrame(0x00, Buffer.from("é☃").subarray(0, 3)), // cut within a character
  serverFrame(0x80, Buffer.from("é☃").subarray(3)),
  serverFrame(0x81, "x".repeat(126)),
  serverFrame(0x81, "x".repeat(65_536)),
  serverFrame(0x81, long),
  closeFrame(4001, "replaced"),
  serverFrame(0x81, "behind the close: not heard"),
]);
const HEARD = [
  "one", "", ["ping", "are you there"], ["pong"], "fragé☃", "x".repeat(126), "x".repeat(65_536), long,
  ["close", 4001, "replaced"],
];

for (const piece of [1, 2, 3, 7, 1000, TALK.length]) {
  test(`a talk in pieces of ${piece} bytes`, () => assert.deepEqual(read(TALK, { piece }), HEARD));
}

for (const [what, bytes, closeCode] of [
  ["a reserved bit", serverFrame(0xc1, "x"), 1002],
  ["an unknown kind", serverFrame(0x83, "x"), 1002],
  ["an unknown control frame", serverFrame(0x8b), 1002],
  ["a masked frame", Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0x78]), 1002],
  ["a fragmented ping", serverFrame(0x09, "x"), 1002],
  ["a long ping", serverFrame(0x89, "x".repeat(126)), 1002],
  ["a continuation of nothing", serverFrame(0x80, "x"), 1002],
  ["a message within a message", Buffer.concat([serverFrame(0x01, "x"), serverFrame(0x81, "y")]), 1002],
  ["a binary message", serverFrame(0x82, "{}"), 1002],
  ["half a close code", serverFrame(0x88, "x"), 1002],
  ["a close code that is never sent", closeFrame(1006), 1002],
  ["a close code that is none", closeFrame(999), 1002],
  ["a close reason that is not UTF-8", serverFrame(0x88, Buffer.from([3, 232, 0xff])), 1007],
  ["text that is not UTF-8", serverFrame(0x81, Buffer.from([0xc3, 0x28])), 1007],
  ["a surrogate in UTF-8", serverFrame(0x81, Buffer.from([0xed, 0xa0, 0x80])), 1007],
  ["a large message", serverFrame(0x81, "x".repeat(1001)), 1009],
  ["fragments of a large message", Buffer.concat([serverFrame(0x01, "x".repeat(999)), serverFrame(0x00, "xx")]), 1009],
  ["a message announced as endless", Buffer.from([0x81, 127, 255, 255, 255, 255, 255, 255, 255, 255]), 1009],
]) {
  test(`refused: ${what}`, () => {
    for (const piece of [1, bytes.length]) {
      assert.throws(() => read(bytes, { piece, max: 1000 }), { closeCode });
    }
  });
}

test("a close without a code, and a message of just the limit", () => {
  assert.deepEqual(read(serverFrame(0x88)), [["close", null, ""]]);
  assert.deepEqual(read(serverFrame(0x81, "x".repeat(1000)), { max: 1000 }), ["x".repeat(1000)]);
});

test("an announced length takes no memory before the bytes come, nor do empty fragments", () => {
  const before = process.memoryUsage().arrayBuffers;
  const readers = Array.from({ length: 50 }, () => new FrameReader(1 << 30, {}));
  for (const reader of readers) {
    reader.push(Buffer.from([0x01, 127, 0, 0, 0, 0, 0x30, 0, 0, 0, 0x78]));
  }
  assert.ok(process.memoryUsage().arrayBuffers - before < 16 << 20);
  const many = Buffer.concat([serverFrame(0x01), ...Array(100_000).fill(serverFrame(0x00)), serverFrame(0x80, "x")]);
  assert.deepEqual(read(many), ["x"]);
});

test("what a client writes is whole and masked, in each form of the length", () => {
  const mask = Buffer.from([1, 2, 3, 4]);
  for (const size of [0, 1, 125, 126, 65_535, 65_536]) {
    const bytes = frame(0x1, "y".repeat(size), mask);
    const start = bytes.length - size;
    assert.equal(bytes[0], 0x81);
    assert.equal(bytes[1], 0x80 | (size < 126 ? size : size < 65_536 ? 126 : 127));
    if (size >= 126) assert.equal(Number(size < 65_536 ? bytes.readUInt16BE(2) : bytes.readBigUInt64BE(2)), size);
    assert.deepEqual(bytes.subarray(start - 4, start), mask);
    const unmasked = bytes.subarray(start).map((byte, at) => byte ^ mask[at & 3]);
    assert.equal(unmasked.toString(), "y".repeat(size));
  }
});
