/** Runs the examples of README.md, unchanged, with a real endpoint. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Client } from "../src/node.js";
import { Endpoint, skip, within } from "./endpoints.js";

const HOME = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const README = readFileSync(path.join(HOME, "README.md"), "utf8");

/** Return the program that begins with this line, with the endpoint's URL instead of the URL in README.md. */
function program(first, url) {
  const found = README.split("```js\n").find((part) => part.startsWith(first));
  return found.split("```")[0].replaceAll(/ws:\/\/127\.0\.0\.1:900\d/g, url);
}

function run(t, code) {
  const running = spawn(process.execPath, ["--input-type=module", "--eval", code], {
    cwd: HOME, // where `ingeborg-client` is this package
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => running.kill("SIGKILL"));
  return [running, createInterface({ input: running.stdout })];
}

test("sub.mjs hears what pub.mjs says, and pub.mjs ends by itself", { skip }, async (t) => {
  const { url } = await Endpoint.start(t);
  const [, heard] = run(t, program("// node sub.mjs", url));
  const first = once(heard, "line");
  // The subscriber reports nothing when it is ready. So this client publishes until the subscriber prints something.
  const probe = await Client.open(url, "probe", { timeoutMs: 20_000 });
  t.after(() => probe.close());
  let isHeard = false;
  first.then(() => (isHeard = true));
  while (!isHeard) {
    await probe.publish("Nena - 99 Luftballons", "are you there", { ack: true, dedup: false });
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.deepEqual(await within(first, "the subscriber's first line"), ["Nena - 99 Luftballons are you there"]);
  const news = [];
  const twice = new Promise((resolve) => {
    heard.on("line", (line) => line.startsWith("Daft Punk") && news.push(line) === 2 && resolve(news));
  });
  for (const said of ["delivered", "delivered"]) {
    const [publisher, lines] = run(t, program("// node pub.mjs", url));
    const ended = once(publisher, "exit");
    assert.deepEqual(await within(once(lines, "line"), "the publisher's line"), [said]);
    assert.deepEqual(await within(ended, "the publisher's end"), [0, null]);
  }
  const line = "Daft Punk - Get Lucky { station: 'triplej' }";
  assert.deepEqual(await within(twice, "the news, told each time"), [line, line]);
});
