// Owns: how elements are made. Must never: turn text into markup. All shown text becomes a text node, so that a topic
// called <script> is only a topic with an odd name.

const SVG = "http://www.w3.org/2000/svg";

/** Returns the element with this id, which has to exist. */
export function part(id) {
    const found = document.getElementById(id);
    if (found === null) throw new Error(`the page has no #${id}`);
    return found;
}

/**
 * Makes an element. Attributes that are null are left out, and functions become listeners. Children are elements or
 * text.
 */
export function element(tag, attributes = {}, ...children) {
    return filled(document.createElement(tag), attributes, children);
}

/** Makes an SVG element in the same way. */
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

/** Set the element's text if it differs, so that browsers do not draw, or read out, an unchanged text again. */
export function say(where, text) {
    if (where.textContent !== text) where.textContent = text;
}

/**
 * Mark a button as usable or unusable. Unlike a disabled button, an unusable button keeps its focus, and can
 * still be pressed, so its listener has to call `allowed`.
 */
export function allow(button, allowed) {
    button.setAttribute("aria-disabled", String(!allowed));
}

/** Returns whether the button is usable. */
export function allowed(button) {
    return button.getAttribute("aria-disabled") !== "true";
}
