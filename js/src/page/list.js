// ListSection: what is out of step, as a list whose entries lead there. Where there is no page to
// click on, the same panel is drawn.

import { element } from "../draw/elements.js";
import { Section } from "./section.js";

/** @import { Desk, Item } from "../types.d.ts" */
/** @import { InvariantPanel } from "../panels/invariants.js" */

export class ListSection extends Section {
  /**
   * @param {Desk} desk
   * @param {InvariantPanel} panel
   */
  constructor(desk, panel) {
    super(desk, panel);
    this.invariants = panel;
    /** @type {string | undefined} */
    this.listed = undefined;
    this.list = element("ul", { class: "sv-violations" });
    this.canvas.remove();
    this.body.prepend(this.list);
  }

  /** @param {boolean} shown */
  showTable(shown) {
    this.list.hidden = shown;
    super.showTable(shown);
  }

  /** @override */
  _draw() {
    const items = this.invariants.items();
    const key = JSON.stringify(items.map((item) => [item, this.desk.happening(item.step)]));
    if (key === this.listed) return;
    this.listed = key;
    const focused = this.list.contains(document.activeElement);
    const unchecked = this.invariants.unchecked();
    const note = unchecked ? [element("li", { class: "sv-note" }, unchecked)] : [];
    this.list.replaceChildren(
      ...items.map((item) => element("li", {}, this._button(item))),
      ...note,
    );
    if (focused) this.desk.focus();
  }

  prepare() {} // there is nothing to draw

  /** @param {Item} at */
  _button({ text, row, slot, step }) {
    const click = () => {
      this.desk.go(step);
      this.desk.pick(row);
      this.desk.point({ row, slot: slot ?? null, index: null });
    };
    const here = this.desk.happening(step);
    const sign = element("span", { "aria-hidden": "true" }, here ? "▲" : "→");
    return element(
      "button",
      { type: "button", class: here ? "sv-wrong" : null, on: { click } },
      sign,
      text,
    );
  }
}
