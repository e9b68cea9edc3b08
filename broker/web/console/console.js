// Owns: the page, with the current view, the state of the connection, and the token. Must never: put a token into an
// address that the page keeps or shows.

import { Connection } from "./connection.js";
import { part, say } from "./dom.js";
import { claims, client_id, keep, token } from "./identity.js";
import { Clients, Topics } from "./lookups.js";
import { Messages } from "./messages.js";
import { Overview } from "./overview.js";

const VIEWS = ["overview", "topics", "clients", "messages"];

const connection = new Connection(token);
const identity = () => client_id(token());
const overview = new Overview(connection, identity);
const topics = new Topics(connection, identity);
const clients = new Clients(connection);
const messages = new Messages(connection, token, identity);

// Views: #overview, #topics/NAME, #clients/ID, #messages

/** A lookup that the page's address requested while there was no connection. It runs when there is a connection. */
let sought = null;

function go(by_link) {
    const [, view, name] = /^#(\w+)(?:\/(.*))?$/s.exec(location.hash) ?? [];
    const shown = VIEWS.includes(view) ? view : VIEWS[0];
    for (const each of VIEWS) {
        part(each).hidden = each !== shown;
        const link = part(`to-${each}`);
        if (each === shown) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
    document.title = `${part(`to-${shown}`).textContent.trim()} · Ingeborg console`;
    overview.show(shown === "overview");
    messages.show(shown === "messages");
    sought = shown === "topics" ? [topics, decoded(name)] : shown === "clients" ? [clients, decoded(name)] : null;
    find();
    // If the focused link was inside the old view, it is hidden now, so focus the new view's title. A link in the menu
    // keeps the focus.
    if (by_link && !document.activeElement?.closest("nav")) part(`${shown}-title`).focus({ preventScroll: true });
    scrollTo(0, 0);
}

function decoded(name = "") {
    try {
        return decodeURIComponent(name);
    } catch {
        return name; // typed by hand, with a lone %
    }
}

function find() {
    if (sought === null) return;
    const [lookup, name] = sought;
    if (name !== "" && connection.state !== "open") return;
    sought = null;
    void lookup.find(name);
}

addEventListener("hashchange", () => go(true));
part("skip").addEventListener("click", (event) => {
    event.preventDefault(); // otherwise the link's address would count as a view's
    part("main").focus();
});

// The connection

const STATES = {
    idle: ["away", "Not connected"],
    connecting: ["unready", "Connecting …"],
    open: ["up", "Live"],
    waiting: ["down", "Connection lost"],
    token: ["down", "Token needed"],
};

let countdown = 0;

function tell() {
    const [mark, text] = STATES[connection.state] ?? STATES.idle;
    const where = part("connection");
    where.className = `mark ${mark}`;
    say(where, text);
    clearInterval(countdown);
    notice();
    if (connection.state === "token") ask_for_token();
    else if (connection.state === "open") {
        if (part("token-dialog").open) part("token-dialog").close();
        find();
        messages.show(!part("messages").hidden);
    }
    introduce();
}

/** Show above the page's foot why there is no connection, and how to get one. */
function notice() {
    const without_token = connection.state === "token" && !part("token-dialog").open;
    if (connection.state === "waiting") {
        say(part("lost-text"), connection.reason);
        count_down();
        countdown = setInterval(count_down, 250);
    } else if (without_token) {
        say(part("lost-text"), "This endpoint needs a token.");
        say(part("lost-when"), "");
    } else if (connection.state === "connecting") {
        say(part("lost-when"), "Trying now …");
    }
    say(part("try-now"), without_token ? "Give a token" : "Try now");
    // The notice stays while the page tries again, because it would flicker otherwise.
    const stays = connection.state === "connecting" && !part("lost").hidden;
    part("lost").hidden = !(connection.state === "waiting" || without_token || stays);
}

function count_down() {
    const left_s = Math.max(0, Math.ceil((connection.retry_at - performance.now()) / 1e3));
    say(part("lost-when"), `Trying again in ${left_s} s.`);
}

/** Show the endpoint, the user and the token's expiry in the line at the foot. */
function introduce() {
    const text = token();
    const { exp } = text === null ? {} : claims(text);
    const until = typeof exp === "number" ? `, until ${new Date(exp * 1e3).toLocaleString("en-GB")}` : "";
    say(part("who"), `${location.host}, as ${identity()}${text === null ? ", without a token" : `, with a token${until}`}`);
    part("forget").hidden = text === null;
}

// The token

function ask_for_token() {
    const dialog = part("token-dialog");
    const problem = part("token-problem");
    say(problem, connection.reason);
    problem.hidden = connection.reason === "";
    part("token").value = "";
    part("ask-token").hidden = false;
    if (!dialog.open) dialog.showModal();
    part("lost").hidden = true;
    part("token").focus();
}

part("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    keep(part("token").value.trim());
    messages.begin_anew();
    connection.open();
});
part("token-cancel").addEventListener("click", () => part("token-dialog").close());
part("token-dialog").addEventListener("close", notice);
part("ask-token").addEventListener("click", ask_for_token);
part("forget").addEventListener("click", () => {
    keep(null);
    messages.begin_anew();
    connection.open();
});
part("try-now").addEventListener("click", () => (connection.state === "token" ? ask_for_token() : connection.open()));
connection.addEventListener("state", tell);

go(false);
connection.open();
