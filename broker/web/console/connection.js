// Owns: one WebSocket to the page's origin, and its renewal. The connection first asks whether the endpoint would
// accept it. Then it connects, matches replies with commands, and reconnects with backoff. SPEC sections 1.5, 5, 6 and
// 9. Must never: keep a token (the caller supplies it), or put a token anywhere except into the two requests that need
// it.

/**
 * Maximum waits in seconds: before the first retry, before later retries, for a command's reply, and for a handshake.
 */
const FIRST_S = 0.5;
const LONGEST_S = 20;
const REPLY_S = 20; // longer than any time-out in the endpoint (SPEC section 1.4)
const HANDSHAKE_S = 10;

/** Maximum number of commands without a reply; a page that has more in flight has a bug. */
const PENDING_MAX = 200;

/**
 * Close codes with special treatment (SPEC section 6). After 1008 the page waits longest before it reconnects, and
 * after the other codes it does not reconnect.
 */
const REPLACED = 4001;
const POLICY = 1008;
const EXPIRED = 4004;
const REVOKED = 4006;

/** The endpoint's address: one level above `/console`, including any path that a proxy adds in front. */
const ROOT = new URL("./", document.baseURI);

/** An error reply with `code`, `message` and `info`, or a missing reply with only a `message`. */
export class Refusal extends Error {
    constructor(message, fields = {}) {
        super(message);
        this.code = fields.error;
        this.info = fields.info;
        this.failed = fields.failed;
    }
}

/**
 * Dispatches two types of events. A `state` event reports each new state: "idle", "connecting", "open", "waiting" (for
 * the next try; see `retry_at` and `reason`), "token" (the endpoint needs a token; see `reason`), or "replaced"
 * (another connection listens for the client). A `note` event reports a message that is not a reply. Its `detail` is
 * {key, payload}, where the payload is JSON text.
 */
export class Connection extends EventTarget {
    state = "idle";
    reason = "";
    retry_at = 0; // by performance.now(), in milliseconds

    #token; // a function that returns the token to connect with now, or null
    #socket = null;
    #attempt = 0; // the number of the try; events of older tries are ignored
    #failures = 0;
    #timer = 0;
    #number = 0;
    #pending = new Map();

    constructor(token) {
        super();
        this.#token = token;
    }

    /** Connect now, without any further wait. */
    open() {
        this.#end("The connection was started again");
        void this.#try(++this.#attempt);
    }

    /** Disconnect, and stay disconnected. */
    close() {
        this.#attempt++;
        this.#end("The connection was closed");
        this.#enter("idle");
    }

    #end(why) {
        clearTimeout(this.#timer);
        const socket = this.#socket;
        this.#socket = null;
        socket?.close(1000);
        this.#refuse_all(why);
    }

    async #try(attempt) {
        this.#enter("connecting");
        const token = this.#token();
        const verdict = await this.#ask(token);
        if (attempt !== this.#attempt) return;
        if (verdict.status === 401) this.#enter("token", token === null ? "" : verdict.text);
        else if (verdict.status !== 200) this.#later(verdict.text);
        else this.#connect(attempt, token);
    }

    /** Ask whether the endpoint would accept a WebSocket, because a browser does not say why one was refused. */
    async #ask(token) {
        const url = new URL("console/access", ROOT);
        url.searchParams.set("origin", location.origin);
        const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
        try {
            const answer = await fetch(url, { headers, cache: "no-store", signal: AbortSignal.timeout(HANDSHAKE_S * 1e3) });
            const text = (await answer.text()).trim();
            return { status: answer.status, text: text.length > 300 ? answer.statusText : text };
        } catch {
            return { status: 0, text: "The endpoint does not answer" };
        }
    }

    #connect(attempt, token) {
        const url = new URL(ROOT);
        url.protocol = url.protocol.replace("http", "ws");
        if (token !== null) url.searchParams.set("access_token", token);
        const socket = new WebSocket(url);
        const patience = setTimeout(() => socket.close(), HANDSHAKE_S * 1e3);
        this.#socket = socket;
        let opened = false;
        socket.addEventListener("open", () => {
            clearTimeout(patience);
            if (attempt !== this.#attempt) return;
            opened = true;
            this.#failures = 0;
            this.#enter("open");
        });
        socket.addEventListener("message", (event) => {
            if (attempt === this.#attempt) this.#take(event.data);
        });
        socket.addEventListener("close", (event) => {
            clearTimeout(patience);
            if (attempt === this.#attempt) this.#lost(event, opened);
        });
    }

    #lost(event, opened) {
        this.#socket = null;
        const why = event.reason || (opened ? "The connection was lost" : "The connection could not be opened");
        this.#refuse_all(why);
        if (event.code === REPLACED) this.#enter("replaced", why);
        else if (event.code === EXPIRED) this.#enter("token", "The token has expired");
        else if (event.code === REVOKED) this.#enter("token", "The token has been revoked");
        else this.#later(why, event.code === POLICY);
    }

    #later(reason, longest = false) {
        // Full jitter (SPEC section 9), but only over the second half of the time, to avoid the text "in 0 s".
        const most_s = longest ? LONGEST_S : Math.min(LONGEST_S, FIRST_S * 2 ** this.#failures++);
        const wait_ms = most_s * (0.5 + Math.random() / 2) * 1e3;
        this.retry_at = performance.now() + wait_ms;
        const attempt = this.#attempt;
        this.#timer = setTimeout(() => {
            if (attempt === this.#attempt) void this.#try(++this.#attempt);
        }, wait_ms);
        this.#enter("waiting", reason);
    }

    #enter(state, reason = "") {
        this.state = state;
        this.reason = reason;
        this.dispatchEvent(new Event("state"));
    }

    /**
     * Send a command and return its success reply. Rejects with a `Refusal`. `fields` has values by name, and `source`
     * has JSON texts by name.
     */
    ask(command, fields, source = {}) {
        if (this.state !== "open") return Promise.reject(new Refusal("There is no connection"));
        if (this.#pending.size >= PENDING_MAX) return Promise.reject(new Refusal("Too many commands wait for a reply"));
        const id = ++this.#number;
        // JSON text is sent unchanged, because its numbers may have more digits than JavaScript's numbers.
        const texts = Object.entries(source).map(([name, text]) => `,${JSON.stringify(name)}:${text}`);
        this.#socket.send(`${JSON.stringify({ command, id, ...fields }).slice(0, -1)}${texts.join("")}}`);
        return new Promise((resolve, reject) => {
            const patience = setTimeout(() => {
                this.#pending.delete(id);
                reject(new Refusal(`No reply within ${REPLY_S} s`));
            }, REPLY_S * 1e3);
            this.#pending.set(id, { resolve, reject, patience });
        });
    }

    #take(frame) {
        const message = JSON.parse(frame);
        if ("broadcast" in message) {
            this.dispatchEvent(new CustomEvent("note", { detail: { key: message.key, payload: payload_of(frame, message) } }));
            return;
        }
        const pending = this.#pending.get(message.id);
        if (pending === undefined) return; // a reply that arrived too late
        this.#pending.delete(message.id);
        clearTimeout(pending.patience);
        if (message.error === undefined) pending.resolve(message);
        else pending.reject(new Refusal(message.message ?? "Error", message));
    }

    #refuse_all(why) {
        for (const { reject, patience } of this.#pending.values()) {
            clearTimeout(patience);
            reject(new Refusal(why));
        }
        this.#pending.clear();
    }
}

/**
 * Returns the payload's own text if the frame has the form that endpoints use, since parsing would round its numbers.
 */
export function payload_of(frame, message) {
    const head = /^\{"key":(?:null|"(?:[^"\\]|\\.)*"),"broadcast":/s.exec(frame);
    return head === null ? JSON.stringify(message.broadcast) : frame.slice(head[0].length, -1);
}
