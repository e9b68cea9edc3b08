// Owns: the first view, with the load, speed and health of the endpoints. The view sends the command `endpoints` every
// second while it is visible. Must never: send this command while the view is not visible, or before the last reply has
// arrived.

import { Chart, Spark } from "./chart.js";
import { element, part, say } from "./dom.js";
import { BANDS, Cluster, HISTORY, SPARK } from "./figures.js";
import { bytes, count, counted, duration, latency, NONE, rate, share, trouble } from "./words.js";

const LOOK_MS = 1_000;

/**
 * The columns of the table after name, state and small line. Each has a heading, an explanation, and a function that
 * returns a row's cell.
 */
const COLUMNS = [
    ["Published", "publishes received from its clients, per second", ({ rates }) => rate(rates?.publishes_received)],
    ["Delivered", "messages put into its clients' outboxes, per second", ({ rates }) => rate(rates?.messages_delivered)],
    ["p99", "99 % of the messages of the last ten seconds are written to their subscribers within this time", ({ quantiles }) => written(quantiles.p99)],
    ["Duplicates", "duplicate publishes that the endpoint dropped as the home of their topics, per second", ({ rates }) => rate(rates?.duplicates_dropped)],
    ["Drops", "messages dropped for any other reason, per second", ({ rates }) => rate(rates?.drops)],
    ["Errors", "error replies, per second", ({ rates }) => rate(rates?.errors)],
    ["In flight", "publishes whose outcome is still unknown", ({ figures }) => count(figures?.publishes_in_flight)],
    ["Clients", "clients that listen at this endpoint", ({ figures }) => count(figures?.clients)],
    ["Connections", "open connections of clients", ({ figures }) => count(figures?.connections)],
    ["CPU", "CPU time, in percent of one core", ({ rates }) => (rates ? `${(rates.cpu_s * 100).toFixed(0)} %` : NONE)],
    ["Memory", "resident memory", ({ figures }) => bytes(figures?.rss_bytes)],
    ["Up for", "time since its start", ({ entry }) => (entry.figures ? duration(entry.uptime_s) : NONE)],
];

function written(quantile) {
    return quantile === null ? NONE : latency(quantile.value_s, quantile.beyond);
}

/** Returns an endpoint's health as a class for its mark, a word, and the reason. */
export function state_of(watched, now_ms) {
    const { entry, listed, seen_at } = watched;
    if (!listed) return ["down", "Gone", `last listed ${duration((now_ms - seen_at) / 1e3)} ago`];
    if (!entry.up || entry.figures === null) return ["down", "Down", entry.reasons?.join("; ") || "does not answer"];
    if (!entry.ready) return ["unready", "Not ready", entry.reasons.join("; ")];
    return ["up", "Up", ""];
}

export class Overview {
    #connection;
    #identity;
    #cluster = new Cluster();
    #rows = new Map(); // indexed by endpoint name
    #timer = 0;
    #asking = false;
    #shown = false;
    #tiles;

    /** `identity` is a function that returns the id of the client that sends the command. */
    constructor(connection, identity) {
        this.#connection = connection;
        this.#identity = identity;
        this.messages = new Chart(part("messages-chart"), {
            what: "Messages per second over the last three minutes",
            lines: [
                { name: "published", label: "Published", hint: "Publishes received from clients" },
                { name: "delivered", label: "Delivered", hint: "Messages put into clients' outboxes" },
                { name: "duplicates", label: "Duplicates", hint: "Publishes dropped because their payload arrived recently" },
            ],
            format: rate,
            length: HISTORY,
        });
        this.latencies = new Chart(part("latency-chart"), {
            what: "Time that messages spent in an endpoint, over the last three minutes",
            lines: [
                { name: "p50", label: "p50", hint: "Half of the messages of the last ten seconds are written to their subscribers within this time" },
                { name: "p99", label: "p99", hint: "99 % of the messages of the last ten seconds are written to their subscribers within this time" },
            ],
            format: latency,
            length: HISTORY,
        });
        this.#tiles = Object.fromEntries(
            ["clients", "connections", "dropped", "in-flight", "drops", "errors", "level", "held", "exceeded"]
                .concat(BANDS.map((band) => `conflated-${band}`))
                .map((id) => [id, part(`tile-${id}`)]),
        );
        part("endpoints-head").append(
            ...COLUMNS.map(([heading, what]) => element("th", { scope: "col", class: "number", title: what }, heading)),
        );
        connection.addEventListener("state", () => this.#go());
        document.addEventListener("visibilitychange", () => this.#go());
    }

    show(shown) {
        this.#shown = shown;
        this.#go();
    }

    /** Sample now if the view is visible and the connection is open. Otherwise stop sampling. */
    #go() {
        clearTimeout(this.#timer);
        this.#timer = 0;
        const open = this.#connection.state === "open";
        part("overview").classList.toggle("stale", !open && this.#cluster.endpoints.size > 0);
        if (!open && this.#cluster.endpoints.size === 0) say(part("endpoints-summary"), "No answer yet.");
        const looking = open && this.#shown && !document.hidden;
        if (!looking) {
            if (this.looked) this.#cluster.pause(performance.now());
            this.looked = false;
        } else if (!this.#asking) {
            void this.#look();
        }
    }

    async #look() {
        this.#asking = true;
        const began = performance.now();
        let reply = null;
        try {
            reply = await this.#connection.ask("endpoints", { client_id: this.#identity() });
        } catch (error) {
            this.#refused(error);
        }
        this.#asking = false;
        if (reply !== null) {
            const now = performance.now();
            this.looked = true;
            this.#cluster.take(reply.endpoints, now);
            this.#draw(now);
        }
        if (this.#connection.state === "open" && this.#shown && !document.hidden) {
            this.#timer = setTimeout(() => void this.#look(), Math.max(0, began + LOOK_MS - performance.now()));
        }
    }

    #refused(error) {
        if (error.code === undefined) return; // the shown state of the connection already says so
        part("overview-figures").hidden = true;
        const notice = part("overview-notice");
        notice.hidden = false;
        say(part("endpoints-summary"), "No figures");
        part("endpoints-summary").className = "mark away";
        const not_permitted = error.code === "forbidden" || error.code === "unauthorized";
        say(part("overview-notice-title"), not_permitted ? "This token does not permit inspecting the endpoints" : "The endpoint answers with an error");
        say(part("overview-notice-text"), trouble(error));
        part("overview-notice-hint").hidden = !not_permitted;
    }

    #draw(now) {
        part("overview-notice").hidden = true;
        part("overview-figures").hidden = false;
        const { totals } = this.#cluster;
        const { p50, p99 } = this.#cluster.latency;
        const [published, duplicates] = [totals.per_s("publishes_received"), totals.per_s("duplicates_dropped")];
        this.messages.show(this.#cluster.history, { published, delivered: totals.per_s("messages_delivered"), duplicates });
        this.latencies.show(this.#cluster.history, { p50: p50?.value_s ?? null, p99: p99?.value_s ?? null });
        say(this.#tiles.clients, count(totals.now("clients")));
        say(this.#tiles.connections, count(totals.now("connections")));
        say(this.#tiles["in-flight"], count(totals.now("publishes_in_flight")));
        say(this.#tiles.dropped, published > 0 ? share(Math.min(1, duplicates / published)) : NONE);
        for (const name of ["drops", "errors"]) {
            const value = totals.per_s(name);
            say(this.#tiles[name], rate(value));
            this.#tiles[name].classList.toggle("bad", value > 0);
        }
        this.#draw_bounds(totals);
        this.#draw_endpoints(now);
    }

    /** Draw the tiles of bounds, or hide them if no client has bounds. */
    #draw_bounds(totals) {
        part("bounds-tiles").hidden = !(totals.now("bounds_clients") > 0);
        say(this.#tiles.level, count(totals.most("bounds_level")));
        say(this.#tiles.held, count(totals.now("bounds_held")));
        for (const band of BANDS) say(this.#tiles[`conflated-${band}`], rate(totals.per_s(`bounds_conflated_${band}`)));
        const exceeded = totals.per_s("bounds_exceeded");
        say(this.#tiles.exceeded, rate(exceeded));
        this.#tiles.exceeded.classList.toggle("bad", exceeded > 0);
    }

    #draw_endpoints(now) {
        const { endpoints } = this.#cluster;
        for (const [name, row] of this.#rows) {
            if (!endpoints.has(name)) {
                row.node.remove();
                this.#rows.delete(name);
            }
        }
        const counts = { up: 0, unready: 0, down: 0 };
        const names = [...endpoints.keys()].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
        names.forEach((name, at) => {
            const watched = endpoints.get(name);
            const row = this.#row(name);
            const [mark, word, why] = state_of(watched, now);
            counts[mark]++;
            row.draw(watched, mark, word, why);
            const table = part("endpoints-rows");
            if (table.children[at] !== row.node) table.insertBefore(row.node, table.children[at] ?? null);
        });
        const parts = [counted(names.length, "endpoint")];
        if (counts.up === names.length) parts.push(names.length === 1 ? "up" : "all up");
        else {
            if (counts.up) parts.push(`${counts.up} up`);
            if (counts.unready) parts.push(`${counts.unready} not ready`);
            if (counts.down) parts.push(`${counts.down} down`);
        }
        const summary = part("endpoints-summary");
        say(summary, `${parts[0]}: ${parts.slice(1).join(", ")}`);
        summary.className = counts.down ? "mark down" : counts.unready ? "mark unready" : "mark up";
    }

    #row(name) {
        let row = this.#rows.get(name);
        if (row === undefined) {
            row = new Row(name);
            this.#rows.set(name, row);
        }
        return row;
    }
}

class Row {
    #state = element("span", { class: "mark" });
    #why = element("small");
    #url = element("small");
    #spark = new Spark(SPARK);
    #cells = COLUMNS.map(() => element("td", { class: "number" }));

    constructor(name) {
        const heading = element("th", { scope: "row" }, element("span", { class: "name" }, name), this.#url);
        const [published, delivered, ...others] = this.#cells;
        const spark = element("td", { class: "line-cell" }, this.#spark.node);
        this.node = element("tr", {}, heading, element("td", { class: "state" }, this.#state, this.#why), spark, published, delivered, ...others);
    }

    draw(watched, mark, word, why) {
        const { entry } = watched;
        this.node.className = mark;
        this.#state.className = `mark ${mark}`;
        say(this.#state, word);
        say(this.#why, why || (entry.me ? "this page’s own" : ""));
        say(this.#url, entry.url);
        this.#spark.draw(watched.spark);
        const shown = { entry, figures: watched.listed ? entry.figures : null, rates: watched.listed ? watched.rates : null };
        shown.quantiles = watched.listed ? watched.quantiles : { p99: null };
        COLUMNS.forEach(([, , cell], at) => say(this.#cells[at], cell(shown)));
    }
}
