/**
 * Checks bounds, which say how stale and how incomplete a client's picture may become, and the fields that say what a
 * message is about. SPEC section 2.8.
 *
 * Owns: the checks of these values, with the error texts of an endpoint. Must never: hold a message, or read a clock.
 */

import { ProtocolError } from "./errors.js";
import { TOPIC_BYTES_MAX, checkTopic, isObject, isTextOf } from "./text.js";

/** Maximum number of rules of one client. */
export const RULES_MAX = 32;

/** The maximum of a staleness and of an interval, and the minimum of a staleness, in milliseconds. */
export const STALENESS_MS_MAX = 40_960;
export const STALENESS_MS_MIN = 10;

/** Maximum number of unconfirmed notifications that a window can permit. */
export const WINDOW_MAX = 100_000;

export const ITEM_BYTES_MAX = 128;
export const WEIGHT_MAX = 1_000_000;

const PRESETS = ["live", "screen", "wall"];

const FIELDS = ["deliver", "interval_ms", "numerical", "prefix", "priority", "staleness_ms", "topic"];

/**
 * Bounds for the topics that the rule matches. The fields have the protocol's names. A rule has either `topic` or
 * `prefix`.
 * @typedef {object} Rule
 * @property {string} [topic] The only topic that the rule matches.
 * @property {string} [prefix] The beginning of the topics that the rule matches; `""` matches every topic.
 * @property {number | null} [staleness_ms] The greatest age of a held message, 10 to 40,960. Default: null, no bound.
 * @property {number | null} [numerical] The greatest total weight of held messages. Default: null, no bound.
 * @property {number} [interval_ms] The least time between two deliveries of a topic, up to 40,960. Default: 0.
 * @property {"all" | "latest"} [deliver] `"latest"`: only the newest held message of each item. Default: `"all"`.
 * @property {number} [priority] From -1 to 1; greater is more urgent. Default: 0.
 */

/** @typedef {"live" | "screen" | "wall" | readonly Rule[]} Bounds A preset, or rules: the first match applies. */

/**
 * Return the value of `bounds` as the client sends it. Throws `bad_state` if the value is not valid, and `bad_topic` if
 * a rule's topic is not valid.
 * @param {unknown} bounds
 * @returns {Bounds}
 */
export function checkBounds(bounds) {
  if (typeof bounds === "string") {
    const preset = /** @type {"live" | "screen" | "wall"} */ (bounds);
    if (PRESETS.includes(preset)) return preset;
    throw bad(`there is no preset ${quoted(bounds)}; there are ${PRESETS.join(", ")}, or give a list of rules`);
  }
  if (!Array.isArray(bounds)) throw bad(`it has to be one of ${PRESETS.join(", ")}, or a list of rules`);
  if (bounds.length > RULES_MAX) throw bad(`it has ${bounds.length} rules; ${RULES_MAX} are the most`);
  return bounds.map((rule, index) => checkRule(index + 1, rule));
}

/**
 * Return the value of `window`, the number of notifications that the client leaves unconfirmed. Throws `bad_state` if
 * the value is not valid.
 * @param {unknown} window
 * @returns {number}
 */
export function checkWindow(window) {
  if (isWhole(window, 1, WINDOW_MAX)) return window;
  throw new ProtocolError("bad_state", `Key 'window' has to be an integer from 1 to ${WINDOW_MAX} (notifications)`);
}

/**
 * Return the fields of a publish that say which item it is about, and its weight. Throws `bad_state` if a value is not
 * valid.
 * @param {unknown} item
 * @param {unknown} weight
 * @returns {{ item?: string, weight?: number }}
 */
export function aboutFields(item, weight) {
  /** @type {{ item?: string, weight?: number }} */
  const fields = {};
  if (isTextOf(item, ITEM_BYTES_MAX)) fields.item = item;
  else if (item !== undefined) {
    throw new ProtocolError("bad_state", `Key 'item' has to be a string of 1 to ${ITEM_BYTES_MAX} bytes of UTF-8`);
  }
  if (typeof weight === "number" && weight >= 0 && weight <= WEIGHT_MAX) fields.weight = weight;
  else if (weight !== undefined) {
    throw new ProtocolError("bad_state", `Key 'weight' has to be a number from 0 to ${WEIGHT_MAX}`);
  }
  return fields;
}

/**
 * Check a rule, and return a copy.
 * @param {number} number
 * @param {unknown} rule
 * @returns {Rule}
 */
function checkRule(number, rule) {
  if (!isObject(rule)) throw bad(`rule ${number} has to be an object`);
  const unknown = Object.keys(rule).sort().find((field) => !FIELDS.includes(field));
  if (unknown !== undefined) {
    throw bad(`rule ${number} has no field ${quoted(unknown)}; the fields are ${FIELDS.join(", ")}`);
  }
  const { topic, prefix, staleness_ms: staleness, numerical, interval_ms: interval, deliver, priority } = rule;
  checkTopics(number, topic, prefix);
  if (staleness !== undefined && staleness !== null && !isWhole(staleness, STALENESS_MS_MIN, STALENESS_MS_MAX)) {
    throw badMs(number, "staleness_ms", "null, or an integer", STALENESS_MS_MIN);
  }
  if (numerical !== undefined && numerical !== null && !(isFiniteNumber(numerical) && numerical > 0)) {
    throw bad(`rule ${number}: 'numerical' has to be a number above 0, or null`);
  }
  if (interval !== undefined && !isWhole(interval, 0, STALENESS_MS_MAX)) {
    throw badMs(number, "interval_ms", "an integer", 0);
  }
  if (isFiniteNumber(staleness) && interval > staleness) {
    throw bad(
      `rule ${number}: 'interval_ms' (${interval}) is above 'staleness_ms' (${staleness}), which cannot be kept`,
    );
  }
  if (deliver !== undefined && deliver !== "all" && deliver !== "latest") {
    throw bad(`rule ${number}: 'deliver' has to be "all" or "latest"`);
  }
  if (priority !== undefined && !(isFiniteNumber(priority) && priority >= -1 && priority <= 1)) {
    throw bad(`rule ${number}: 'priority' has to be a number from -1 to 1`);
  }
  return { ...rule };
}

/**
 * @param {number} number
 * @param {unknown} topic
 * @param {unknown} prefix
 */
function checkTopics(number, topic, prefix) {
  if ((topic === undefined) === (prefix === undefined)) {
    throw bad(`rule ${number} has to have either 'topic' or 'prefix' ("": every topic)`);
  }
  if (topic !== undefined) {
    if (typeof topic !== "string") throw bad(`rule ${number}: 'topic' has to be a string`);
    try {
      checkTopic(topic);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      throw new ProtocolError(error.code, `Key 'bounds': rule ${number}: ${error.info}`);
    }
  } else if (prefix !== "" && !isTextOf(prefix, TOPIC_BYTES_MAX)) {
    throw bad(`rule ${number}: 'prefix' has to be a string of at most ${TOPIC_BYTES_MAX} bytes of UTF-8`);
  }
}

/**
 * @param {unknown} value
 * @param {number} least
 * @param {number} most
 * @returns {value is number}
 */
function isWhole(value, least, most) {
  return typeof value === "number" && Number.isInteger(value) && value >= least && value <= most;
}

/**
 * @param {unknown} value
 * @returns {value is number}
 */
function isFiniteNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** @param {string} text */
function bad(text) {
  return new ProtocolError("bad_state", `Key 'bounds': ${text}`);
}

/**
 * @param {number} number
 * @param {string} field
 * @param {string} kind
 * @param {number} least
 */
function badMs(number, field, kind, least) {
  return bad(`rule ${number}: '${field}' has to be ${kind} from ${least} to ${STALENESS_MS_MAX} (in milliseconds)`);
}

/**
 * Return the beginning of a text, for an error.
 * @param {string} text
 */
function quoted(text) {
  return `'${[...text].slice(0, 32).join("")}'`;
}
