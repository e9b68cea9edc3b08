// Owns: the views that look something up: a topic's subscribers and where they are, a client's topics and where it
// listens. Must never: change anything; its commands only read.

import { element, part } from "./dom.js";
import { Pages } from "./pages.js";
import { counted, ending } from "./words.js";

/** The address of a view in this page, of a topic or client. */
export function address(view, name) {
    return `#${view}/${encodeURIComponent(name)}`;
}

/** Where a subscriber listens; a token without `inspect` is not told more than that it does. */
function place({ endpoint = null, online = endpoint !== null }) {
    if (!online) return element("span", { class: "mark away" }, "does not listen");
    return element("span", { class: "mark up" }, endpoint ?? "listens");
}

/** A link with when the subscription ends beside it, where it does. */
export function with_term(link, term) {
    const text = ending(term, new Date());
    return text === "" ? link : element("span", {}, link, " ", element("span", { class: "muted" }, text));
}

/** One view: a field for the name, and what was found. */
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
            else location.hash = to; // so that it can be gone back to, kept, and passed on
        });
    }

    /** Look it up; "": only show the field. */
    async find(name) {
        this.name = name;
        this.field.value = name;
        part(`${this.view}-hint`).hidden = name !== "";
        if (name === "") this.pages.host.hidden = true;
        else await this.pages.begin(`Looking for ${name} …`, name);
    }
}

/** The term of one of the topics in a page of `subscriptions`; undefined: it stays. */
export function term_of(page, topic) {
    return Object.hasOwn(page.terms ?? {}, topic) ? page.terms[topic] : undefined;
}

/** A topic's subscribers. `identity`: a function: the client id to ask as. */
export class Topics extends Lookup {
    constructor(connection, identity) {
        const pages = new Pages(part("topics-result"), {
            what: "Subscribers",
            headings: ["Client", "Listens at"],
            empty: "None",
            row: (found) => [
                with_term(element("a", { href: address("clients", found.client_id) }, found.client_id), found),
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

/** A client's topics, and its place. */
export class Clients extends Lookup {
    constructor(connection) {
        const pages = new Pages(part("clients-result"), {
            what: "Topics",
            headings: ["Topic"],
            empty: "No topics",
            row: ({ topic, term }) => [with_term(element("a", { href: address("topics", topic) }, topic), term)],
            load: async (cursor, limit) => {
                const client_id = this.name;
                const [location, page] = await Promise.all([
                    connection.ask("location", { client_id }),
                    connection.ask("subscriptions", { client_id, limit, ...(cursor === null ? {} : { cursor }) }),
                ]);
                const title = location.endpoint === null ? "Does not listen" : `Listens at ${location.endpoint}`;
                const topics = page.cursor === null && cursor === null ? `, ${counted(page.topic.length, "topic")}` : "";
                const items = page.topic.map((topic) => ({ topic, term: term_of(page, topic) }));
                return { items, cursor: page.cursor, title, note: `client “${client_id}”${topics}` };
            },
        });
        super("clients", pages);
    }
}
