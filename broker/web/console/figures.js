// Owns: figures derived from counters, namely rates, quantiles, and their values in the last minutes. Pure: uses
// neither the DOM nor a clock.

/**
 * Number of samples in a chart, one per second; and numbers of one endpoint's samples from which the page computes
 * rates and quantiles.
 */
export const HISTORY = 180;
const RATE_LOOKS = 5;
const LATENCY_LOOKS = 10;

/** Number of points in an endpoint's small line. */
export const SPARK = 60;

/**
 * Maximum number of endpoints to remember, and the time after which the page forgets an endpoint that is not listed.
 */
const ENDPOINTS_MAX = 256;
const GONE_FOR_MS = 600_000;

/** The bands of priority by which endpoints count conflated messages. */
export const BANDS = ["low", "medium", "high"];

const COUNTERS = [
    ...["publishes_received", "messages_delivered", "duplicates_dropped", "drops", "errors", "cpu_s"],
    ...["bounds_exceeded", ...BANDS.map((band) => `bounds_conflated_${band}`)],
];

/**
 * Returns the buckets' increase between two cumulative histograms with the same bounds, or null if the bounds differ.
 */
export function increase(earlier, later) {
    if (earlier.length !== later.length || earlier.some(([bound], at) => bound !== later[at][0])) return null;
    return later.map(([bound, total], at) => [bound, total - earlier[at][1]]);
}

/** Returns the sum of histograms. It leaves out histograms whose bounds differ from those of the first. */
export function sum(histograms) {
    const [first, ...others] = histograms;
    if (first === undefined) return [];
    const total = first.map(([bound, count]) => [bound, count]);
    for (const other of others) {
        if (other.length !== total.length || other.some(([bound], at) => bound !== total[at][0])) continue;
        other.forEach(([, count], at) => (total[at][1] += count));
    }
    return total;
}

/**
 * Returns the q-quantile, in seconds and interpolated within its bucket, as {value_s, beyond}, or null if the count is
 * zero. If `beyond` is true, the quantile is above all bounds.
 */
export function quantile(buckets, q) {
    const total = buckets.at(-1)?.[1] ?? 0;
    if (!(total > 0)) return null;
    let [lower_s, below] = [0, 0];
    for (const [upper_s, upto] of buckets) {
        if (upper_s === null) break;
        if (upto >= q * total) {
            const part = upto === below ? 1 : (q * total - below) / (upto - below);
            return { value_s: lower_s + (upper_s - lower_s) * part, beyond: false };
        }
        [lower_s, below] = [upper_s, upto];
    }
    return { value_s: lower_s, beyond: true };
}

/**
 * Returns the rates per second between two samples of one endpoint, or null if the samples belong to two lives of the
 * endpoint or are the same.
 */
function between(earlier, later) {
    if (earlier === undefined || later === undefined) return null;
    const time_s = later.uptime_s - earlier.uptime_s;
    if (!(time_s > 0)) return null;
    return Object.fromEntries(
        COUNTERS.map((name) => [name, Math.max(0, later.figures[name] - earlier.figures[name]) / time_s]),
    );
}

/** The samples of one endpoint over time. */
export class Watched {
    /**
     * The last sample. `seen_at` is the time when the endpoint was last listed, in milliseconds. `listed` says whether
     * the last reply lists it.
     */
    entry;
    seen_at = 0;
    listed = true;
    spark = []; // deliveries per second, or null if unknown
    #looks = [];

    take(entry, at_ms) {
        this.entry = entry;
        this.seen_at = at_ms;
        this.listed = true;
        if (entry.figures === null) {
            this.#looks = [];
        } else {
            const last = this.#looks.at(-1);
            if (last !== undefined && entry.uptime_s < last.uptime_s) this.#looks = []; // it has restarted
            this.#looks.push(entry);
            if (this.#looks.length > LATENCY_LOOKS + 1) this.#looks.shift();
        }
        this.#draw(this.second?.messages_delivered ?? null);
    }

    /** Do not compare earlier samples with later ones. */
    pause() {
        this.#looks = [];
        this.#draw(null);
    }

    #draw(value) {
        this.spark.push(value);
        if (this.spark.length > SPARK) this.spark.shift();
    }

    /** Rates of the last second. */
    get second() {
        return between(this.#looks.at(-2), this.#looks.at(-1));
    }

    /** Rates of the last few seconds, for the shown numbers, because rates over one second fluctuate all the time. */
    get rates() {
        return between(this.#looks.at(-1 - RATE_LOOKS) ?? this.#looks[0], this.#looks.at(-1));
    }

    /** The histogram of the last ten seconds, or null if it is unknown. */
    get buckets() {
        if (this.#looks.length < 2) return null;
        return increase(this.#looks[0].figures.delivery_buckets, this.#looks.at(-1).figures.delivery_buckets);
    }

    /** p50 and p99 of the last ten seconds. */
    get quantiles() {
        const buckets = this.buckets ?? [];
        return { p50: quantile(buckets, 0.5), p99: quantile(buckets, 0.99) };
    }
}

/** The samples of all endpoints over time. */
export class Cluster {
    endpoints = new Map();
    history = []; // results of `point`, oldest first

    /** Process a reply to `endpoints`. `at_ms` comes from any clock that only goes forward. */
    take(entries, at_ms) {
        for (const watched of this.endpoints.values()) watched.listed = false;
        // For a while, the list has a restarted endpoint twice: its current life and its previous life.
        const dead_first = entries.slice(0, ENDPOINTS_MAX).sort((one, other) => Number(one.up) - Number(other.up));
        const newest = new Map(dead_first.map((entry) => [entry.name, entry]));
        for (const entry of newest.values()) {
            if (!this.endpoints.has(entry.name)) this.endpoints.set(entry.name, new Watched());
            this.endpoints.get(entry.name).take(entry, at_ms);
        }
        for (const [name, watched] of this.endpoints) {
            const gone = !watched.listed && (at_ms - watched.seen_at > GONE_FOR_MS || this.endpoints.size > ENDPOINTS_MAX);
            if (gone) this.endpoints.delete(name);
        }
        this.#remember({ at_ms, ...this.#point() });
    }

    /** Record that sampling pauses now. Rates across the pause would be true but misleading. */
    pause(at_ms) {
        for (const watched of this.endpoints.values()) watched.pause();
        this.#remember({ at_ms, published: null, delivered: null, duplicates: null, p50: null, p99: null });
    }

    #remember(point) {
        this.history.push(point);
        if (this.history.length > HISTORY) this.history.shift();
    }

    get #up() {
        return [...this.endpoints.values()].filter((watched) => watched.listed && watched.entry.figures !== null);
    }

    #point() {
        const seconds = this.#up.map((watched) => watched.second).filter((rates) => rates !== null);
        const total = (name) => (seconds.length ? seconds.reduce((sum, rates) => sum + rates[name], 0) : null);
        const { p50, p99 } = this.latency;
        return {
            published: total("publishes_received"),
            delivered: total("messages_delivered"),
            duplicates: total("duplicates_dropped"),
            p50: p50?.value_s ?? null,
            p99: p99?.value_s ?? null,
        };
    }

    /** p50 and p99 of the last ten seconds. */
    get latency() {
        const buckets = sum(this.#up.map((watched) => watched.buckets).filter((each) => each !== null));
        return { p50: quantile(buckets, 0.5), p99: quantile(buckets, 0.99) };
    }

    /**
     * Functions that combine a figure of all endpoints that are up. `now` returns the sum of the figure, `most` its
     * maximum, and `per_s` the sum of its rates. Each returns null if no endpoint's value is known.
     */
    get totals() {
        const up = this.#up;
        const add = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) : null);
        const now = (name) => add(up.map((watched) => watched.entry.figures[name]));
        const known = up.map((watched) => watched.rates).filter((rates) => rates !== null);
        const per_s = (name) => add(known.map((rates) => rates[name]));
        const most = (name) => (up.length ? Math.max(...up.map((watched) => watched.entry.figures[name])) : null);
        return { now, most, per_s };
    }
}
