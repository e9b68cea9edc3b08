// Owns: the visitor's token and its claims. The tab's session storage keeps the token, and the page's address never
// contains it. Must never: decide whether a token is valid, because the endpoint does that.

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

/** Store the token, or forget it if the value is null. */
export function keep(value) {
    held = value;
    try {
        if (value === null) sessionStorage.removeItem(PLACE);
        else sessionStorage.setItem(PLACE, value);
    } catch {
        // see token()
    }
}

/** Returns the token's claims without checking them, or {} if it is not a JWT. */
export function claims(text) {
    try {
        const body = text.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
        const value = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(body), (char) => char.charCodeAt(0))));
        return typeof value === "object" && value !== null ? value : {};
    } catch {
        return {};
    }
}

/**
 * Returns a client id that the token covers. If the token covers several, the id stays the same for the life of the
 * page.
 */
export function client_id(text) {
    const subject = text === null ? "*" : claims(text).sub;
    if (typeof subject !== "string" || subject === "*") return mine;
    return subject.endsWith("*") ? subject.slice(0, -1) + mine : subject;
}

/** Returns whether this page made the id. If so, no page or program uses the id after this page is gone. */
export function is_mine(client_id) {
    return client_id.endsWith(mine);
}

const mine = `console-${Array.from(crypto.getRandomValues(new Uint8Array(4)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
