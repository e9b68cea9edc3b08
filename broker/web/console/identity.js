// Owns: the visitor's token and its claims. The tab's session keeps the token; the page's address never does. Must
// never: judge a token; the endpoint does.

const PLACE = "ingeborg-token";

/** The token, or null. */
export function token() {
    try {
        return sessionStorage.getItem(PLACE);
    } catch {
        return held;
    }
}

let held = null; // for a browser that refuses to store anything

/** Store the token; null: forget it. */
export function keep(value) {
    held = value;
    try {
        if (value === null) sessionStorage.removeItem(PLACE);
        else sessionStorage.setItem(PLACE, value);
    } catch {
        // see token()
    }
}

/** The token's claims, unchecked: {} if it is not a JWT. */
export function claims(text) {
    try {
        const body = text.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
        const value = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(body), (char) => char.charCodeAt(0))));
        return typeof value === "object" && value !== null ? value : {};
    } catch {
        return {};
    }
}

/** A client id that the token covers; where the token leaves a choice, the same one for the life of the page. */
export function client_id(text) {
    const subject = text === null ? "*" : claims(text).sub;
    if (typeof subject !== "string" || subject === "*") return mine;
    return subject.endsWith("*") ? subject.slice(0, -1) + mine : subject;
}

/** Whether no other page or program uses this id again once this page is gone. */
export function is_mine(client_id) {
    return client_id.endsWith(mine);
}

const mine = `console-${Array.from(crypto.getRandomValues(new Uint8Array(4)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
