// Tip: what lies under the pointer, in words, beside it.

import { element, setText } from "../draw/elements.js";

const ASIDE = 14; // px from the pointer
const BELOW = 24; // so that it leaves free what it explains

/**
 * Where a tip stands: below the pointer, or above it where the window ends; in the end it may lie
 * beside the pointer, but never under it.
 * @param {{ x: number, y: number }} at the pointer
 * @param {{ width: number, height: number }} size of the tip
 * @param {number} width of the place
 * @param {number} bottom of the window
 */
export function tipPlace(at, size, width, bottom) {
  const left = Math.max(Math.min(at.x + ASIDE, width - size.width - 8), 4);
  const below = at.y + BELOW;
  const above = at.y - BELOW - size.height;
  return { left, top: below + size.height <= bottom ? below : above };
}

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
    const size = { width: this.root.offsetWidth, height: this.root.offsetHeight };
    const at = { x: event.clientX - box.left, y: event.clientY - box.top };
    const { left, top } = tipPlace(at, size, box.width, window.innerHeight - box.top);
    Object.assign(this.root.style, { left: `${left}px`, top: `${top}px` });
  }
}
