// Owns: how figures, times and errors are written. Pure: the current time is an argument.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

/** The text in place of a missing figure. */
export const NONE = "–";

/** A count. */
export function count(value) {
    return value === null || value === undefined ? NONE : whole.format(value);
}

/** A count and its noun: "1 client", "2 clients". */
export function counted(value, one, several = `${one}s`) {
    return `${whole.format(value)} ${value === 1 ? one : several}`;
}

/** A rate per second. */
export function rate(value) {
    if (value === null || value === undefined) return NONE;
    if (value === 0) return "0";
    if (value < 0.05) return "<0.1";
    if (value < 9.95) return tenth.format(value);
    return value < 1e6 ? whole.format(value) : short.format(value);
}

/** Returns the text of a short time, given in seconds. `beyond` says that the true time is longer. */
export function latency(value_s, beyond = false) {
    if (value_s === null || value_s === undefined) return NONE;
    if (value_s === 0) return "0";
    const sign = beyond ? ">" : "";
    const ms = value_s * 1e3;
    if (ms >= 1e3) return `${sign}${tenth.format(value_s)} s`;
    if (ms >= 9.95) return `${sign}${whole.format(ms)} ms`;
    return `${sign}${ms >= 1 ? tenth.format(ms) : ms.toFixed(2)} ms`;
}

/** Returns the text of a share (from 0 to 1), in percent. */
export function share(value) {
    if (value === null || value === undefined) return NONE;
    return value > 0 && value < 0.001 ? "<0.1 %" : `${tenth.format(value * 100)} %`;
}

/** Memory. */
export function bytes(value) {
    if (value === null || value === undefined) return NONE;
    if (value >= 1e9) return `${tenth.format(value / 1e9)} GB`;
    return `${whole.format(value / 1e6)} MB`;
}

/** A duration. */
export function duration(value_s) {
    if (value_s === null || value_s === undefined) return NONE;
    const s = Math.floor(value_s);
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** A time of day. */
export function clock(date) {
    return date.toLocaleTimeString("en-GB");
}

/** Says when a subscription ends (`until`, `ends_at`: SPEC section 2.3). The text is empty if it stays. */
export function ending({ until, ends_at }, now) {
    const listens = until === undefined ? "" : "until it disconnects";
    if (ends_at === undefined) return listens;
    const at = new Date(ends_at * 1e3);
    const day = at.toDateString() === now.toDateString() ? "" : `${at.toLocaleDateString("en-GB")}, `;
    return `${listens === "" ? "until" : `${listens}, or`} ${day}${clock(at)}`;
}

/** Maximum number of a client's filters shown for a topic, and maximum number of characters shown of each filter. */
const FILTERS_SHOWN = 3;
const FILTER_CHARACTERS = 160;

/**
 * Returns a line for each subscription with a filter (SPEC section 2.6), with its end. If there are too many, the last
 * line says how many more there are.
 */
export function filtering(subscriptions, now) {
    const lines = subscriptions.slice(0, FILTERS_SHOWN).map((subscription) => {
        const text = JSON.stringify(subscription.filter);
        const shown = text.length > FILTER_CHARACTERS ? `${text.slice(0, FILTER_CHARACTERS)} …` : text;
        return [shown, ending(subscription, now)];
    });
    const more = subscriptions.length - lines.length;
    return more > 0 ? [...lines, [`and ${counted(more, "more filter")}`, ""]] : lines;
}

/** Returns the text of an error reply (SPEC section 5), or the reason why a command got no reply. */
export function trouble(error) {
    if (error.code === undefined) return error.message;
    const where = error.failed?.length ? ` Not delivered to: ${error.failed.join(", ")}.` : "";
    return `${error.code}: ${error.message}.${error.info ? ` ${error.info}.` : ""}${where}`;
}
