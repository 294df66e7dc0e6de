// Tip: what lies under the pointer, in words, beside it.

import { element, setText } from "../draw/elements.js";

/** @import { Hit } from "../types.d.ts" */

const ASIDE = 14; // px from the pointer
const BELOW = 24; // so that it leaves free what it explains
const FREE = 6; // px from a row that it leaves free

/**
 * Where a tip stands: below the pointer, or above it where the window ends; in the end it may lie
 * beside the pointer, but never under it. A finger hides more: the tip of a tap leaves free the row.
 * @param {{ x: number, y: number }} at the pointer
 * @param {{ width: number, height: number }} size of the tip
 * @param {number} width of the place
 * @param {number} bottom of the window
 * @param {[number, number]} [band] top and bottom of the row
 */
export function tipPlace(at, size, width, bottom, band) {
  const left = Math.max(Math.min(at.x + ASIDE, width - size.width - 8), 4);
  const below = band ? band[1] + FREE : at.y + BELOW;
  const above = (band ? band[0] - FREE : at.y - BELOW) - size.height;
  return { left, top: below + size.height <= bottom ? below : above };
}

/**
 * Where the row of a tap lies in the window.
 * @param {PointerEvent} event
 * @param {Hit | null} found
 * @param {number} scale of the view
 * @returns {[number, number] | undefined}
 */
export function bandOf({ pointerType, currentTarget }, found, scale) {
  if (pointerType !== "touch" || found?.top === undefined || found.bottom === undefined) return;
  const { top } = /** @type {Element} */ (currentTarget).getBoundingClientRect();
  return [top + found.top * scale, top + found.bottom * scale];
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
   * @param {[number, number]} [band] top and bottom of the row, in px of the window
   */
  show(hint, event, band) {
    this.root.hidden = !hint;
    if (!hint || !event) return;
    setText(this.root, hint);
    const box = this.place.getBoundingClientRect();
    const size = { width: this.root.offsetWidth, height: this.root.offsetHeight };
    const scale = box.width / this.place.offsetWidth || 1; // of a presentation
    /** @param {number} y of the window */
    const inside = (y) => (y - box.top) / scale;
    const at = { x: (event.clientX - box.left) / scale, y: inside(event.clientY) };
    const row = /** @type {[number, number] | undefined} */ (band?.map(inside));
    const bottom = inside(window.innerHeight);
    const { left, top } = tipPlace(at, size, this.place.offsetWidth, bottom, row);
    Object.assign(this.root.style, { left: `${left}px`, top: `${top}px` });
  }
}
