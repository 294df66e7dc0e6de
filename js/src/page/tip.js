// Tip: what lies under the pointer, in words, beside it.

import { element, setText } from "../draw/elements.js";

export class Tip {
  /** @param {HTMLElement} place */
  constructor(place) {
    this.place = place;
    /** @type {HTMLElement} */
    this.root = element("div", { class: "sv-tip", hidden: true, "aria-hidden": "true" });
  }

  /**
   * @param {string | null | undefined} hint
   * @param {MouseEvent} [event]
   */
  show(hint, event) {
    this.root.hidden = !hint;
    if (!hint || !event) return;
    setText(this.root, hint);
    const box = this.place.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const left = Math.max(Math.min(x + 14, box.width - this.root.offsetWidth - 8), 4);
    Object.assign(this.root.style, { left: `${left}px`, top: `${y + 20}px` });
  }
}
