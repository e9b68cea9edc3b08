// Owns: lines over time, drawn as SVG, namely the charts with their scales and the small lines of a table. Must never:
// know what the figures measure.

import { drawing, element, say } from "./dom.js";
import { NONE } from "./words.js";

const HEIGHT = 168;
const MARGIN = { top: 8, right: 4, bottom: 20, left: 52 };
const RULES = 4;

/** Returns the smallest round number that is not less than the value. Half of that number also has few digits. */
export function ceiling(value) {
    if (!(value > 0)) return 1;
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

/**
 * Returns the attribute `d` of an SVG path through the values. A null leaves a gap. `x` maps an index to a position,
 * and `y` maps a value to a position.
 */
export function line(values, x, y) {
    let path = "";
    let gap = true;
    values.forEach((value, at) => {
        if (value !== null) path += `${gap ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
        gap = value === null;
    });
    return path;
}

/** A small line without a scale. The largest value reaches the full height. */
export class Spark {
    node = drawing("svg", { class: "spark", viewBox: "0 0 72 22", "aria-hidden": "true" });
    #path = drawing("path", { class: "line delivered" });
    #length;

    constructor(length) {
        this.#length = length;
        this.node.append(drawing("path", { class: "rule", d: "M0 21.5H72" }), this.#path);
    }

    draw(values) {
        const top = Math.max(...values, 1e-9);
        const x = (at) => 72 - ((values.length - 1 - at) * 72) / (this.#length - 1);
        this.#path.setAttribute("d", line(values, x, (value) => 20.5 - (value / top) * 18));
    }
}

/**
 * A chart with several lines on one scale. The newest values are at the right edge. If the user points at the chart, it
 * shows the values of that moment.
 */
export class Chart {
    /**
     * `lines` has an object {name, label, hint} for each line. `format` returns a value's text. `length` is the number
     * of points.
     */
    constructor(host, { lines, format, length, what }) {
        this.lines = lines;
        this.format = format;
        this.length = length;
        this.points = [];
        this.pointed = null; // number of points from the right edge, or null
        this.width = 0;
        this.svg = drawing("svg", { class: "chart", role: "img", "aria-label": what, height: HEIGHT });
        this.scale = Array.from({ length: RULES + 1 }, () => ({
            rule: drawing("line", { class: "rule" }),
            text: drawing("text", { class: "scale", "text-anchor": "end" }),
        }));
        this.times = ["start", "middle", "end"].map((anchor) => drawing("text", { class: "scale", "text-anchor": anchor }));
        this.paths = lines.map(({ name }) => drawing("path", { class: `line ${name}` }));
        this.cursor = drawing("line", { class: "cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" });
        this.svg.append(...this.scale.flatMap(({ rule, text }) => [rule, text]), ...this.times, this.cursor, ...this.paths);
        this.values = lines.map(() => element("strong", { class: "figure" }, NONE));
        this.moment = element("span", { class: "moment" });
        const legend = lines.map(({ name, label, hint }, at) =>
            element("div", { title: hint ?? null }, element("dt", { class: `key ${name}` }, label), element("dd", {}, this.values[at])),
        );
        host.append(element("dl", { class: "legend" }, ...legend), this.moment, this.svg);
        this.svg.addEventListener("pointermove", (event) => this.#point_at(event));
        this.svg.addEventListener("pointerleave", () => this.#point_at(null));
        new ResizeObserver(([entry]) => {
            const width = Math.floor(entry.contentRect.width);
            if (width === this.width) return;
            this.width = width;
            this.#draw();
        }).observe(this.svg);
    }

    /**
     * Each of `points` has a value or null for each line. `now` has the legend's values while nobody points at the
     * chart.
     */
    show(points, now) {
        this.points = points;
        this.now = now;
        if (this.width > 0) this.#draw();
    }

    #point_at(event) {
        if (event === null) {
            this.pointed = null;
        } else {
            const from_right = (this.width - MARGIN.right - event.offsetX) / this.#step;
            this.pointed = Math.max(0, Math.min(this.points.length - 1, Math.round(from_right)));
        }
        this.#tell();
    }

    get #step() {
        return (this.width - MARGIN.left - MARGIN.right) / (this.length - 1);
    }

    #draw() {
        const [bottom, right] = [HEIGHT - MARGIN.bottom, this.width - MARGIN.right];
        const values = this.points.flatMap((point) => this.lines.map(({ name }) => point[name] ?? null));
        const known = values.some((value) => value !== null);
        const top = ceiling(Math.max(0, ...values));
        const x = (at) => right - (this.points.length - 1 - at) * this.#step;
        const y = (value) => bottom - (value / top) * (bottom - MARGIN.top);
        this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
        this.scale.forEach(({ rule, text }, at) => {
            const height = y((top * at) / RULES);
            for (const [name, value] of Object.entries({ x1: MARGIN.left, x2: right, y1: height, y2: height })) {
                rule.setAttribute(name, value);
            }
            text.setAttribute("x", MARGIN.left - 8);
            text.setAttribute("y", height + 4);
            say(text, at % 2 || !known ? "" : this.format((top * at) / RULES));
        });
        this.times.forEach((text, at) => {
            text.setAttribute("x", MARGIN.left + ((right - MARGIN.left) * at) / 2);
            text.setAttribute("y", HEIGHT - 4);
            say(text, at === 2 ? "now" : `−${((this.length * (2 - at)) / 2).toFixed(0)} s`);
        });
        this.paths.forEach((path, at) => {
            const values = this.points.map((point) => point[this.lines[at].name]);
            path.setAttribute("d", line(values, x, y));
        });
        this.#tell();
    }

    #tell() {
        const point = this.pointed === null ? null : this.points.at(-1 - this.pointed);
        this.cursor.setAttribute("visibility", point ? "visible" : "hidden");
        if (point) {
            const x = this.width - MARGIN.right - this.pointed * this.#step;
            this.cursor.setAttribute("x1", x);
            this.cursor.setAttribute("x2", x);
        }
        const ago_s = point ? Math.round((this.points.at(-1).at_ms - point.at_ms) / 1e3) : 0;
        say(this.moment, point ? (ago_s ? `${ago_s} s ago` : "now") : "");
        this.lines.forEach(({ name }, at) => {
            const value = point ? point[name] : this.now?.[name];
            say(this.values[at], value === null || value === undefined ? NONE : this.format(value));
        });
    }
}
