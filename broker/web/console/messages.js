// Owns: publishing, subscribing and listening by hand. This view has a separate connection. The endpoint closes that
// connection if another connection takes over the client (4001) or if the page reads too slowly (4002). The other views
// then keep their connection. Must never: hold more messages than it shows. The view only counts messages that have left
// the list.

import { Connection } from "./connection.js";
import { element, part, say } from "./dom.js";
import { is_mine } from "./identity.js";
import { address, subscriptions_at, with_subscriptions } from "./lookups.js";
import { clock, count, counted, trouble } from "./words.js";

/**
 * Maximum numbers of messages in the list, of outcomes in the list of outcomes, of topics shown as subscribed, and of
 * characters of a payload.
 */
const MESSAGES_MAX = 200;
const OUTCOMES_MAX = 20;
const TOPICS_MAX = 200;
const PAYLOAD_SHOWN = 2_000;

export class Messages {
    #looking; // the other views' connection, to look up where a client listens now
    #connection;
    #identity;
    #wanted = null; // the client that is to listen, or null
    #listening = false;
    #fresh = []; // messages that the list does not show yet, oldest first
    #received = 0;
    #unseen = 0; // how many messages have left the list
    #due = false;
    #topics = new Map(); // topic -> the client's subscriptions, or undefined for one without filter and end
    #more = false; // the client has further topics that the view does not show

    /**
     * `token` is a function that returns the token to connect with. `identity` is a function that returns the proposed
     * client id.
     */
    constructor(looking, token, identity) {
        this.#looking = looking;
        this.#identity = identity;
        this.#connection = new Connection(token);
        this.#connection.addEventListener("state", () => this.#changed());
        this.#connection.addEventListener("note", (event) => this.#note(event.detail));
        part("client-form").addEventListener("submit", (event) => this.#submitted(event, () => this.#listen_or_stop()));
        part("subscribe-form").addEventListener("submit", (event) => this.#submitted(event, () => this.#subscribe()));
        part("publish-form").addEventListener("submit", (event) => this.#submitted(event, () => this.#publish()));
        part("publish-payload").addEventListener("input", () => this.#check());
        for (const kind of document.getElementsByName("payload-kind")) kind.addEventListener("change", () => this.#check());
        part("client-id").addEventListener("change", () => this.#reread());
        part("take-over").addEventListener("click", () => void this.#listen());
        part("leave-it").addEventListener("click", () => this.#ask_first(null));
        part("messages-clear").addEventListener("click", () => this.#clear());
        part("unsubscribe-all").addEventListener("click", () => void this.#unsubscribe([...this.#topics.keys()]));
        this.#count();
    }

    /** Show or hide the view. A listening client continues to listen in both cases. */
    show(shown) {
        const field = part("client-id");
        if (!shown) return;
        if (field.value === "") field.value = this.#identity();
        if (this.#connection.state === "idle" && this.#looking.state === "open") this.#connection.open();
    }

    /** Start again after a change of the token, which may be for another client. */
    begin_anew() {
        this.#wanted = null;
        this.#listening = false;
        part("client-id").value = this.#identity();
        if (this.#connection.state !== "idle") this.#connection.close();
        this.#show_topics([], false);
    }

    #submitted(event, act) {
        event.preventDefault();
        act().catch((error) => this.#outcome("bad", trouble(error)));
    }

    get #client() {
        return part("client-id").value;
    }

    /** Returns the connection when it is open. Rejects if the current attempt to open it fails. */
    async #open() {
        const connection = this.#connection;
        if (connection.state === "open") return connection;
        if (connection.state !== "connecting") connection.open();
        await new Promise((resolve, reject) => {
            const settled = () => {
                if (connection.state === "connecting") return;
                connection.removeEventListener("state", settled);
                if (connection.state === "open") resolve();
                else reject(new Error(connection.reason || "There is no connection"));
            };
            connection.addEventListener("state", settled);
        });
        return connection;
    }

    // Listening

    async #listen_or_stop() {
        if (this.#wanted !== null) {
            const client_id = this.#wanted;
            this.#wanted = null;
            this.#listening = false;
            this.#changed();
            await (await this.#open()).ask("unlisten", { client_id });
            return;
        }
        const place = await this.#place();
        if (place === null) await this.#listen();
        else this.#ask_first(place);
    }

    /** Returns the place where the client listens now, or null if it does not listen or the page cannot find out. */
    async #place() {
        try {
            return (await this.#looking.ask("location", { client_id: this.#client })).endpoint;
        } catch {
            return null; // forbidden, or unknown: the hint under the field says what listening does
        }
    }

    #ask_first(place) {
        part("take-over-question").hidden = place === null;
        if (place === null) {
            part("listen").focus();
            return;
        }
        say(part("take-over-text"), `${this.#client} listens at ${place} now. If it listens here, the endpoint closes the other connection.`);
        part("leave-it").focus();
    }

    async #listen() {
        part("take-over-question").hidden = true;
        this.#wanted = this.#client;
        this.#changed();
        part("listen").focus();
        try {
            await this.#open();
            await this.#listen_again();
        } catch (error) {
            this.#outcome("bad", trouble(error));
        }
    }

    async #listen_again() {
        const client_id = this.#wanted;
        if (client_id === null || this.#listening) return;
        this.#listening = true;
        let reply = {};
        try {
            reply = await this.#connection.ask("listen", { client_id });
        } catch (error) {
            if (this.#connection.state !== "open") return; // the next connection tries again
            this.#wanted = null;
            this.#listening = false;
            this.#outcome("bad", trouble(error));
        }
        this.#changed();
        await this.#have_ended(client_id, reply);
        await this.#reread();
    }

    /** Report the ended subscriptions in a `listen` reply. If the client is the page's own, subscribe it again. */
    async #have_ended(client_id, { ended = [], ended_count = 0 }) {
        if (ended_count === 0) return;
        this.#outcome("unready", `${counted(ended_count, "subscription")} of ${client_id} had ended`);
        if (!is_mine(client_id)) return;
        const by_filter = Map.groupBy(ended, ({ filter }) => JSON.stringify(filter));
        try {
            for (const some of by_filter.values()) {
                const { filter } = some[0];
                await this.#subscribe_to(client_id, some.map(({ topic }) => topic), filter && { filter });
            }
        } catch (error) {
            this.#outcome("bad", trouble(error));
        }
    }

    #changed() {
        const { state, reason } = this.#connection;
        if (state !== "open") this.#listening = false;
        if (state === "replaced") this.#wanted = null;
        else if (state === "open" && this.#wanted !== null && !this.#listening) void this.#listen_again();
        const wanted = this.#wanted !== null;
        part("client-id").readOnly = wanted;
        say(part("listen"), wanted ? "Stop listening" : "Listen");
        const [mark, text] =
            state === "replaced"
                ? ["down", "Another connection listens for this client now"]
                : wanted && state === "open"
                  ? ["up", `Listens as ${this.#wanted}`]
                  : wanted
                    ? ["unready", state === "waiting" ? `${reason}; trying again` : "Connecting …"]
                    : ["away", "Does not listen: no messages arrive"];
        const where = part("listen-state");
        where.className = `mark ${mark}`;
        say(where, text);
        if (state === "open" && !wanted) void this.#reread();
    }

    // Subscriptions

    async #subscribe() {
        const field = part("subscribe-topic");
        const topic = field.value;
        await this.#open();
        const all = await this.#subscribe_to(this.#client, topic);
        field.value = "";
        const before = this.#topics.has(topic) ? (this.#topics.get(topic) ?? [{}]) : [];
        // the new subscription does not replace those with filters
        const filters = before.filter(({ filter }) => filter !== undefined);
        const stays = before.find((one) => Object.keys(one).length === 0);
        this.#topics.delete(topic);
        this.#show_topics([[topic, [stays ?? all, ...filters]], ...this.#topics], this.#more);
        this.#outcome("good", `${this.#client} subscribes to “${topic}”`);
    }

    /**
     * Subscribe the client. Nobody would remove the subscriptions of the page's own client, so they end with this page
     * if the endpoint supports that. Returns {until} if the subscriptions end, otherwise {}.
     */
    async #subscribe_to(client_id, topic, filter = {}) {
        if (is_mine(client_id)) {
            try {
                await this.#connection.ask("subscribe", { client_id, topic, ...filter, until: "disconnect" });
                return { until: "disconnect" };
            } catch (error) {
                if (error.code !== "bad_state") throw error; // an endpoint with `lookup` routing
            }
        }
        await this.#connection.ask("subscribe", { client_id, topic, ...filter });
        return {};
    }

    async #unsubscribe(topics) {
        try {
            await (await this.#open()).ask("unsubscribe", { client_id: this.#client, topic: topics });
            this.#outcome("good", `${this.#client} does not subscribe to ${topics.length === 1 ? `“${topics[0]}”` : counted(topics.length, "topic")} any more`);
        } catch (error) {
            this.#outcome("bad", trouble(error));
        }
        part("subscribe-topic").focus(); // the button that was clicked is gone
        await this.#reread();
    }

    /** Read the client's subscriptions from the store again, and show them. */
    async #reread() {
        const client_id = this.#client;
        if (client_id === "" || this.#connection.state !== "open") return;
        try {
            const page = await this.#connection.ask("subscriptions", { client_id, limit: TOPICS_MAX });
            if (client_id === this.#client) this.#show_topics(page.topic.map((topic) => [topic, subscriptions_at(page, topic)]), page.cursor !== null);
        } catch {
            if (client_id === this.#client) this.#show_topics([], false); // the next command shows the reason
        }
    }

    /** `topics` has pairs of a topic and the client's subscriptions to it. */
    #show_topics(topics, more) {
        this.#topics = new Map(topics.slice(0, TOPICS_MAX));
        this.#more = more || topics.length > TOPICS_MAX;
        part("topics-list").replaceChildren(
            ...[...this.#topics].map(([topic, subscriptions]) => {
                const away = element(
                    "button",
                    { type: "button", class: "quiet", "aria-label": `Unsubscribe from ${topic}`, title: "Unsubscribe", click: () => void this.#unsubscribe([topic]) },
                    "×",
                );
                const link = element("a", { href: address("topics", topic) }, topic);
                return element("li", {}, with_subscriptions(link, subscriptions), away);
            }),
        );
        say(part("topics-count"), this.#more ? `The first ${this.#topics.size} topics` : counted(this.#topics.size, "topic"));
        part("unsubscribe-all").hidden = this.#topics.size === 0;
        say(part("unsubscribe-all"), this.#more ? "Unsubscribe from these" : "Unsubscribe from all");
    }

    // Publishing

    /** Returns the payload as JSON text. If it is invalid, returns null, and the page shows the reason. */
    #check() {
        const field = part("publish-payload");
        const problem = part("payload-problem");
        let text = JSON.stringify(field.value);
        let wrong = "";
        if (part("payload-json").checked) {
            text = field.value;
            try {
                JSON.parse(text);
            } catch (error) {
                text = null;
                wrong = `This is not JSON: ${error.message}`;
            }
        }
        say(problem, wrong);
        field.setAttribute("aria-invalid", String(text === null));
        return text;
    }

    async #publish() {
        const payload = this.#check();
        if (payload === null) {
            part("publish-payload").focus();
            return;
        }
        const topic = part("publish-topic").value;
        const fields = { client_id: this.#client, topic, ack: true, dedup: part("publish-dedup").checked };
        const connection = await this.#open();
        const began = performance.now();
        const reply = await connection.ask("publish", fields, { payload });
        const ms = Math.max(1, Math.round(performance.now() - began));
        if (reply.duplicate) this.#outcome("unready", `“${topic}”: dropped as a duplicate, ${ms} ms`);
        else this.#outcome("good", `“${topic}”: published, ${ms} ms`);
    }

    #outcome(mark, text) {
        const list = part("outcomes");
        const kind = { good: "up", bad: "down", unready: "unready" }[mark];
        list.prepend(element("li", {}, element("time", {}, clock(new Date())), element("span", { class: `mark ${kind}` }, text)));
        while (list.children.length > OUTCOMES_MAX) list.lastElementChild.remove();
        part("outcomes-empty").hidden = true;
    }

    // Arriving messages

    #note(message) {
        this.#received++;
        this.#fresh.push({ ...message, at: new Date() });
        if (this.#fresh.length > MESSAGES_MAX) {
            this.#fresh.shift();
            this.#unseen++;
        }
        if (this.#due) return;
        this.#due = true; // while the browser does not draw the page, `#fresh` keeps only what fits into the list
        requestAnimationFrame(() => this.#draw());
    }

    #draw() {
        this.#due = false;
        const list = part("messages-list");
        list.prepend(...this.#fresh.reverse().map((message) => item(message)));
        this.#fresh = [];
        while (list.children.length > MESSAGES_MAX) {
            list.lastElementChild.remove();
            this.#unseen++;
        }
        this.#count();
    }

    #clear() {
        part("messages-list").replaceChildren();
        this.#received = 0;
        this.#unseen = 0;
        this.#count();
    }

    #count() {
        const older = this.#unseen ? `, ${count(this.#unseen)} no longer shown` : "";
        say(part("messages-count"), this.#received ? `${count(this.#received)} received${older}` : "");
        part("messages-empty").hidden = this.#received > 0;
        part("messages-clear").hidden = this.#received === 0;
    }
}

function item({ key, payload, at }) {
    const shown = payload.length > PAYLOAD_SHOWN ? `${payload.slice(0, PAYLOAD_SHOWN)} … (${count(payload.length)} characters)` : payload;
    const topic = key === null ? element("span", { class: "badge" }, "broadcast") : element("a", { href: address("topics", key) }, key);
    return element("li", {}, element("div", { class: "item-head" }, topic, element("time", {}, clock(at))), element("pre", {}, shown));
}
