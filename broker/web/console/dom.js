// Owns: making elements. Must never: turn text into markup; everything shown becomes a text node, so that a topic
// called <script> is only a topic with an odd name.

const SVG = "http://www.w3.org/2000/svg";

/** The element with this id, which has to exist. */
export function part(id) {
    const found = document.getElementById(id);
    if (found === null) throw new Error(`the page has no #${id}`);
    return found;
}

/** An element: attributes (nulls are left out; functions become listeners), then children: elements or text. */
export function element(tag, attributes = {}, ...children) {
    return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function drawing(tag, attributes = {}, ...children) {
    return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === "function") made.addEventListener(name, value);
        else if (value !== null) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
}

/** Put the text there if it differs: browsers then do not draw, or read out, an unchanged text again. */
export function say(where, text) {
    if (where.textContent !== text) where.textContent = text;
}

/** Mark a button as unusable; unlike a disabled one it keeps its focus, and its listener has to check this. */
export function allow(button, allowed) {
    button.setAttribute("aria-disabled", String(!allowed));
}

/** Is the button usable? */
export function allowed(button) {
    return button.getAttribute("aria-disabled") !== "true";
}
