// Notice: a sentence about where the view has just gone and why, or why it went nowhere. It stands
// over the page and takes no room; the next step removes it.

import { element } from "../draw/elements.js";

export class Notice {
  constructor() {
    /** @type {HTMLElement} */
    this.root = element("p", { class: "sv-notice", role: "status" });
  }

  /** @param {string} words */
  say(words) {
    if (words === this.root.textContent) return;
    this.root.replaceChildren(...(words ? [element("span", {}, words)] : []));
  }

  clear() {
    this.say("");
  }
}
