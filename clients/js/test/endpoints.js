/**
 * Starts, kills, restarts and ends real endpoints for tests, as separate processes.
 *
 * Owns: the processes that it starts. Needs the repository's Python: INGEBORG_PYTHON, or its .venv.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../..");
export const PYTHON = process.env.INGEBORG_PYTHON ?? path.join(ROOT, ".venv/bin/python");

/** The longest wait in a test, in milliseconds, which is enough on a busy machine. */
export const PATIENCE_MS = 20_000;

/** Why tests with real endpoints cannot run here, or false if they can. */
export const skip = existsSync(PYTHON) && existsSync(path.join(ROOT, "broker")) ? false : `no ${PYTHON}`;

/** Create a directory for the test, and delete it at the test's end. */
export function directory(t) {
  const made = mkdtempSync(path.join(tmpdir(), "ingeborg-js-"));
  t.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** Find a free port below the ports of outgoing connections, because a restart needs the same port again. */
async function freePort() {
  for (;;) {
    const server = createServer();
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const free = await new Promise((resolve) => {
      server.once("error", () => resolve(false));
      server.listen(port, "127.0.0.1", () => resolve(true));
    });
    server.close();
    if (free) return port;
  }
}

/** Run `python -m ingeborg.broker.command.cli` with these arguments until it ends, and return its output. */
export async function ingeborg(...args) {
  const done = spawn(PYTHON, ["-m", "ingeborg.broker.command.cli", ...args], { cwd: ROOT, stdio: ["ignore", "pipe", "inherit"] });
  let out = "";
  done.stdout.on("data", (part) => (out += part));
  const [code] = await once(done, "close");
  if (code !== 0) throw new Error(`ingeborg ${args[0]} ended with ${code}`);
  return out.trim();
}

/** The process groups of running endpoints. They are killed even if somebody ends the test run. */
const running = new Set();
process.on("exit", () => {
  for (const pid of running) killGroup(pid);
});
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => process.exit(1));

function killGroup(pid) {
  running.delete(pid);
  try {
    process.kill(-pid, "SIGKILL");
  } catch (error) {
    if (error.code !== "ESRCH") throw error; // it has already ended
  }
}

export class Endpoint {
  #process = null;
  #args;

  #env;

  constructor(name, port, store, options, env) {
    this.scheme = options.includes("--tls-cert") ? "wss" : "ws";
    this.url = `${this.scheme}://127.0.0.1:${port}/`;
    this.#env = { ...process.env, ...env };
    this.#args = ["serve", "--name", name, "--port", String(port), "--store", `lmdb:${store}`, ...options];
  }

  /** Start an endpoint, and wait until it is ready. It ends with the test. */
  static async start(t, { name = "one", store = directory(t), options = [], env = {} } = {}) {
    const endpoint = new Endpoint(name, await freePort(), store, options, env);
    t.after(() => endpoint.kill());
    await endpoint.start();
    return endpoint;
  }

  async start() {
    this.#process = spawn(PYTHON, ["-m", "ingeborg.broker.command.cli", ...this.#args], {
      cwd: ROOT,
      env: this.#env,
      stdio: ["ignore", "pipe", "pipe"],
      detached: true, // its own process group, with its store's writers
    });
    running.add(this.#process.pid);
    let said = "";
    this.#process.stderr.on("data", (part) => (said = (said + part).slice(-4000)));
    const lines = createInterface({ input: this.#process.stdout });
    const ready = new Promise((resolve, reject) => {
      lines.on("line", (line) => line.includes("ready at") && resolve());
      lines.on("close", () => reject(new Error(`the endpoint ended: ${said}`)));
    });
    await within(ready, `an endpoint is ready; ${said}`);
  }

  /** Send SIGKILL to the endpoint and its store's writers. */
  async kill() {
    const ending = this.#process;
    if (ending === null) return;
    this.#process = null;
    const runs = ending.exitCode === null && ending.signalCode === null;
    const ended = runs ? once(ending, "exit") : null;
    killGroup(ending.pid);
    await ended;
  }

  /** Shut the endpoint down cleanly. */
  async stop() {
    const ending = this.#process;
    const ended = once(ending, "exit");
    ending.kill("SIGTERM");
    await within(ended, "an endpoint's orderly end");
    await this.kill();
  }
}

/** Return the promise's value. Fails after PATIENCE_MS. */
export function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${PATIENCE_MS} ms: ${what}`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
