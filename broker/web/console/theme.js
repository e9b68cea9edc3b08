// Owns: the theme, light or dark, as the system or the visitor chose. This is a classic script in the page's head, so
// that a page is never drawn first in one theme and then in the other. Must never: store anything except that choice.
"use strict";

(() => {
    const NEXT = { system: "light", light: "dark", dark: "system" };
    const root = document.documentElement;

    function kept() {
        try {
            const theme = localStorage.getItem("ingeborg-theme");
            return theme in NEXT ? theme : "system";
        } catch {
            return "system"; // a browser may refuse to store anything; the choice then lasts as long as the page
        }
    }

    function show(theme) {
        root.dataset.theme = theme;
        const button = document.getElementById("theme");
        if (button !== null) {
            button.querySelector("span").textContent = `Theme: ${theme}`;
            button.title = `Theme: ${theme}. Change it to ${NEXT[theme]}`;
        }
    }

    show(kept());
    document.addEventListener("DOMContentLoaded", () => {
        show(root.dataset.theme);
        document.getElementById("theme").addEventListener("click", () => {
            const theme = NEXT[root.dataset.theme];
            try {
                localStorage.setItem("ingeborg-theme", theme);
            } catch {
                // see kept()
            }
            show(theme);
        });
    });
})();
