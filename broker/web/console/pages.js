// Owns: a result that comes in pages, shown as a table with buttons for the previous and the next page. Must never:
// hold more than one page, because a topic can have 100,000 subscribers.

import { allow, allowed, element, say } from "./dom.js";
import { clock, count, trouble } from "./words.js";

/** Rows per page. */
const ROWS = 100;

export class Pages {
    #load;
    #row;
    #head;
    #cursors = [null]; // the cursor of each page, up to the current page
    #sizes = []; // the sizes of the earlier pages
    #next = null;
    #asked = 0;

    /**
     * `host` is an empty element, and `headings` are the headings of the columns. `row` maps an item to the contents of
     * its cells. `load` maps (cursor, limit) to a promise of {items, cursor, title, note}. `what` is the table's
     * subject, for screen readers. `empty` is the text if there are no items.
     */
    constructor(host, { headings, row, load, what, empty }) {
        this.#load = load;
        this.#row = row;
        this.empty = empty;
        this.title = element("h3", { tabindex: "-1" });
        this.note = element("p", { class: "note" });
        this.status = element("p", { class: "muted", role: "status" });
        this.error = element("p", { class: "error", role: "alert", hidden: "" });
        this.rows = element("tbody");
        this.#head = element("thead", {}, element("tr", {}, ...headings.map((text) => element("th", { scope: "col" }, text))));
        const table = element("table", {}, element("caption", { class: "unseen" }, what), this.#head, this.rows);
        this.table = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": what }, table);
        this.before = element("button", { type: "button", click: () => this.#turn(this.before, -1) }, "← Previous");
        this.after = element("button", { type: "button", click: () => this.#turn(this.after, 1) }, "Next →");
        this.again = element("button", { type: "button", click: () => void this.#show(0) }, "Refresh");
        const buttons = element("div", { class: "buttons" }, this.before, this.after, this.again);
        host.append(
            element("header", { class: "result-head" }, element("div", {}, this.title, this.note), buttons),
            this.error,
            this.table,
            this.status,
        );
        this.host = host;
        host.hidden = true;
    }

    /**
     * Clear the old page, and load the first page. `wait` is the title until the page arrives, and `failed` is the
     * title if the page cannot be loaded.
     */
    async begin(wait, failed) {
        this.failed = failed;
        say(this.status, "");
        this.error.hidden = true;
        this.#cursors = [null];
        this.#sizes = [];
        this.#next = null;
        this.rows.replaceChildren();
        this.table.hidden = true;
        say(this.title, wait);
        say(this.note, "");
        this.host.hidden = false;
        await this.#show(0);
    }

    #turn(button, by) {
        if (allowed(button)) void this.#show(by);
    }

    async #show(by) {
        const asked = ++this.#asked;
        const cursor = by > 0 ? this.#next : this.#cursors.at(-1 + by);
        this.host.setAttribute("aria-busy", "true");
        for (const button of [this.before, this.after]) allow(button, false);
        let page;
        try {
            page = await this.#load(cursor, ROWS);
        } catch (error) {
            if (asked !== this.#asked) return;
            this.host.removeAttribute("aria-busy");
            say(this.title, this.failed);
            say(this.error, trouble(error));
            this.error.hidden = false;
            this.#offer();
            return;
        }
        if (asked !== this.#asked) return; // a later request has replaced this one
        this.host.removeAttribute("aria-busy");
        this.error.hidden = true;
        if (by > 0) {
            this.#cursors.push(cursor);
            this.#sizes.push(this.rows.children.length);
        } else if (by < 0) {
            this.#cursors.pop();
            this.#sizes.pop();
        }
        this.#next = page.cursor;
        this.rows.replaceChildren(
            ...page.items.map((item) => element("tr", {}, ...this.#row(item).map((cell) => element("td", {}, cell)))),
        );
        this.table.hidden = page.items.length === 0;
        this.table.scrollTop = 0;
        say(this.title, page.title);
        say(this.note, page.note);
        const first = this.#sizes.reduce((sum, size) => sum + size, 0) + 1;
        const range = page.items.length ? `${count(first)} to ${count(first + page.items.length - 1)}` : this.empty;
        say(this.status, `${range}, as of ${clock(new Date())}`);
        this.#offer();
    }

    #offer() {
        allow(this.before, this.#cursors.length > 1);
        allow(this.after, this.#next !== null);
        const several = this.#cursors.length > 1 || this.#next !== null;
        this.before.hidden = !several;
        this.after.hidden = !several;
    }
}
