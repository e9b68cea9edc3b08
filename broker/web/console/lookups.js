// Owns: the two lookup views. One shows a topic's subscribers and where they listen, and the other shows a client's
// topics and where it listens. Must never: change anything; its commands only read.

import { element, part } from "./dom.js";
import { Pages } from "./pages.js";
import { counted, ending, filtering } from "./words.js";

/** Returns the address of a topic's or client's view in this page. */
export function address(view, name) {
    return `#${view}/${encodeURIComponent(name)}`;
}

/** Shows the place where a subscriber listens. With a token that lacks `inspect`, only whether it listens is known. */
function place({ endpoint = null, online = endpoint !== null }) {
    if (!online) return element("span", { class: "mark away" }, "does not listen");
    return element("span", { class: "mark up" }, endpoint ?? "listens");
}

/**
 * Returns the link, followed by the filters and ends of a client's subscriptions to a topic. SPEC section 2.3 describes
 * `subscriptions`. The reply has no `subscriptions` if the client has neither a filter nor an end there, or if the
 * token lacks `inspect`. `filtered` says that all of the client's subscriptions have filters.
 */
export function with_subscriptions(link, subscriptions = [], filtered = false) {
    const now = new Date();
    const muted = (text) => element("span", { class: "muted" }, ` ${text}`);
    const filters = subscriptions.filter(({ filter }) => filter !== undefined);
    const texts = subscriptions.filter(({ filter }) => filter === undefined).map((all) => ending(all, now));
    if (texts.length > 0 && filters.length > 0) texts.push("every message, because one subscription has no filter");
    if (filtered && filters.length === 0) texts.push("with filters");
    const beside = texts.filter((text) => text !== "").map(muted);
    const lines = filtering(filters, now).map(([line, ends]) =>
        element("span", { class: "filter" }, element("code", {}, line), ends === "" ? null : muted(ends)),
    );
    return element("span", {}, link, ...beside, ...lines);
}

/** Returns the client's subscriptions to one of the topics in a page of `subscriptions` (SPEC section 2.3). */
export function subscriptions_at({ subscriptions = {} }, topic) {
    return Object.hasOwn(subscriptions, topic) ? subscriptions[topic] : undefined;
}

/** A lookup view, with a field for the name and the result. */
class Lookup {
    constructor(view, pages) {
        this.view = view;
        this.field = part(`${view}-name`);
        this.pages = pages;
        part(`${view}-form`).addEventListener("submit", (event) => {
            event.preventDefault();
            if (this.field.value === "") return;
            const to = address(view, this.field.value);
            if (location.hash === to) void this.find(this.field.value);
            else location.hash = to; // so that the browser can go back to it, and people can bookmark and share it
        });
    }

    /** Look the name up. If it is empty, only show the field. */
    async find(name) {
        this.name = name;
        this.field.value = name;
        part(`${this.view}-hint`).hidden = name !== "";
        if (name === "") this.pages.host.hidden = true;
        else await this.pages.begin(`Looking for ${name} …`, name);
    }
}

/** A topic's subscribers. `identity` is a function that returns the id of the client that sends the command. */
export class Topics extends Lookup {
    constructor(connection, identity) {
        const pages = new Pages(part("topics-result"), {
            what: "Subscribers",
            headings: ["Client", "Listens at"],
            empty: "None",
            row: (found) => [
                with_subscriptions(
                    element("a", { href: address("clients", found.client_id) }, found.client_id),
                    found.subscriptions,
                    found.filtered,
                ),
                place(found),
            ],
            load: async (cursor, limit) => {
                const fields = { client_id: identity(), topic: this.name, limit, cursor };
                const reply = await connection.ask("subscribers", fields);
                const title = counted(reply.count, "subscriber");
                return { items: reply.subscribers, cursor: reply.cursor, title, note: `of “${reply.topic}”` };
            },
        });
        super("topics", pages);
    }
}

/** A client's topics, and the place where it listens. */
export class Clients extends Lookup {
    constructor(connection) {
        const pages = new Pages(part("clients-result"), {
            what: "Topics",
            headings: ["Topic"],
            empty: "No topics",
            row: ({ topic, subscriptions }) => [
                with_subscriptions(element("a", { href: address("topics", topic) }, topic), subscriptions),
            ],
            load: async (cursor, limit) => {
                const client_id = this.name;
                const [location, page] = await Promise.all([
                    connection.ask("location", { client_id }),
                    connection.ask("subscriptions", { client_id, limit, ...(cursor === null ? {} : { cursor }) }),
                ]);
                const title = location.endpoint === null ? "Does not listen" : `Listens at ${location.endpoint}`;
                const topics = page.cursor === null && cursor === null ? `, ${counted(page.topic.length, "topic")}` : "";
                const items = page.topic.map((topic) => ({ topic, subscriptions: subscriptions_at(page, topic) }));
                return { items, cursor: page.cursor, title, note: `client “${client_id}”${topics}` };
            },
        });
        super("clients", pages);
    }
}
