/** Tests which files are published, and which files a page can load. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const HOME = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const source = (name) => readFileSync(path.join(HOME, "src", name), "utf8");

/** Return the files that this file imports, directly or indirectly. */
function loaded(name, seen = new Set()) {
  if (seen.has(name)) return seen;
  seen.add(name);
  if (name.startsWith("./")) {
    for (const [, next] of source(name).matchAll(/^(?:import|export)\s[^;]*?["']([^"';]+)["'];/gm)) loaded(next, seen);
  }
  return seen;
}

test("a page that loads index.js loads no module of Node's, nor anything else from outside", () => {
  const entry = [...loaded("./index.js")];
  assert.ok(entry.includes("./client.js") && entry.includes("./waiting.js"));
  assert.deepEqual(entry.filter((name) => !name.startsWith("./") || /node|frames/.test(name)), []);
  assert.ok([...loaded("./node.js")].includes("node:https"), "the reader of imports finds them");
  for (const name of [...entry, "./web-socket.js"]) assert.doesNotMatch(source(name), /\bBuffer\b|\bprocess\.(?!versions)/);
});

test("it has no dependencies, and its lock file names no registry", () => {
  const described = JSON.parse(readFileSync(path.join(HOME, "package.json"), "utf8"));
  assert.deepEqual(Object.keys(described).filter((key) => /ependencies$/.test(key)), ["devDependencies"]);
  for (const version of Object.values(described.devDependencies)) assert.match(version, /^\d+\.\d+\.\d+$/);
  const lock = readFileSync(path.join(HOME, "package-lock.json"), "utf8");
  assert.doesNotMatch(lock, /"resolved"|:\/\/[^"]*registry/);
});

test("import by the package's name gives Node's client", async () => {
  const { Client } = await import("ingeborg-client");
  assert.equal(Client, (await import("../src/node.js")).Client);
});

const npm = (() => {
  try {
    return execFileSync("npm", ["--version"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  } catch {
    return null;
  }
})();

test("npm packs the sources, the types, the licence and the page, and nothing else", { skip: npm ? false : "no npm" }, () => {
  const packed = execFileSync("npm", ["pack", "--dry-run", "--json", "--offline", "--ignore-scripts"], {
    cwd: HOME,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  const answer = JSON.parse(packed);
  const [{ files, name, version }] = Array.isArray(answer) ? answer : Object.values(answer); // npm 11 and before; 12
  assert.deepEqual([name, version], ["ingeborg-client", "0.1.0"]);
  const modules = readdirSync(path.join(HOME, "src")).sort();
  assert.deepEqual(
    files.map((file) => file.path).sort(),
    [
      ...["LICENSE", "README.md", "package.json"],
      ...modules.map((module) => `src/${module}`),
      ...modules.map((module) => `types/${module.replace(/\.js$/, ".d.ts")}`),
    ].sort(),
  );
});
