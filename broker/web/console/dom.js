// Owns: making elements. Must never: make markup of text; whatever is shown becomes a text node, so that a topic called
// <script> is nothing but a topic with an odd name.

const SVG = "http://www.w3.org/2000/svg";

/** The element with this id; it has to be there. */
export function part(id) {
    const found = document.getElementById(id);
    if (found === null) throw new Error(`the page has no #${id}`);
    return found;
}

/** An element: attributes (what is null is left out; functions become listeners), then children: elements or text. */
export function element(tag, attributes = {}, ...children) {
    return filled(document.createElement(tag), attributes, children);
}

/** The same, of SVG. */
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

/** Put the text there, if it is another one: an unchanged text is not drawn again, nor read out again. */
export function say(where, text) {
    if (where.textContent !== text) where.textContent = text;
}

/** A button that cannot be used now keeps its focus, unlike a disabled one; its listener has to look at this. */
export function allow(button, allowed) {
    button.setAttribute("aria-disabled", String(!allowed));
}

/** May the button be used? */
export function allowed(button) {
    return button.getAttribute("aria-disabled") !== "true";
}
