// SteeredSection: a panel whose things the arrow keys go through, once it has the focus. What they lead
// to lights up as under the pointer, and is said in words.

import { element, setText } from "../draw/elements.js";
import { placeOf } from "./place.js";
import { Section } from "./section.js";

/** @import { Desk, Panel } from "../types.d.ts" */

export class SteeredSection extends Section {
  /**
   * @param {Desk} desk
   * @param {Panel} panel
   */
  constructor(desk, panel) {
    super(desk, panel);
    this.said = element("p", { class: "sv-said", "aria-live": "polite" });
    this.body.append(this.said);
    this.canvas.tabIndex = 0;
    this.canvas.addEventListener("keydown", (event) => this._steer(event));
    this.canvas.addEventListener("blur", () => this._leave());
  }

  /**
   * The keys must not go through the steps of the run as well.
   * @param {KeyboardEvent} event
   */
  _steer(event) {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.shiftKey;
    const found = plain ? (this.panel.steer?.(event.key) ?? null) : null;
    if (!found) return;
    event.preventDefault();
    event.stopPropagation();
    this.desk.point(placeOf(found));
    setText(this.said, found.hint);
  }
}
