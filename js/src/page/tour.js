// Tour: leads a reader through the stops of `tourOf`, in a box at the bottom of the view. The reader
// goes from one to the next; whatever was chosen before is there again at the end.

import { element, setText } from "../draw/elements.js";
import { tourOf } from "../film/tour.js";

/** @import { Shell } from "./shell.js" */

export class Tour {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
    this.at = -1;
    /** @type {import("../film/tour.js").Stop[]} */
    this.stops = [];
    /**
     * @param {string} words
     * @param {() => void} click
     */
    const button = (words, click) =>
      element("button", { type: "button", class: "sv-small", on: { click } }, words);
    this.words = element("p", { "aria-live": "polite" });
    this.place = element("span", { class: "sv-place" });
    this.back = button("back", () => this.to(this.at - 1));
    this.next = button("next", () => this.to(this.at + 1));
    const close = button("end", () => this.end());
    const line = element("div", { class: "sv-group" }, this.place, this.back, this.next, close);
    this.root = element(
      "div",
      { class: "sv-tour", role: "group", "aria-label": "tour", hidden: true },
      this.words,
      line,
    );
    this.button = element(
      "button",
      {
        type: "button",
        class: "sv-icon sv-whole",
        "aria-label": "tour of a minute",
        title: "tour of a minute (g)",
        on: { click: () => this.toggle() },
      },
      "tour",
    );
    this.button.classList.add("sv-first"); // until it is taken
  }

  toggle() {
    if (this.at < 0) this.to(0);
    else this.end();
  }

  /** @param {number} number of the stop */
  to(number) {
    const { shell } = this;
    this.stops = this.stops.length ? this.stops : tourOf(shell.runs[0].film);
    if (number < 0) return;
    if (number >= this.stops.length) return this.end();
    this.at = number;
    this.button.classList.remove("sv-first");
    const { step, row, lens, turned, spot, words } = this.stops[number];
    shell.goTo(shell.runs[0], step);
    shell.pickBy(row - shell.runs[0].view.row);
    shell.pin(lens);
    shell.turnTo(turned);
    this._light(spot);
    this.root.dataset.spot = spot;
    setText(this.words, words);
    setText(this.place, `${number + 1} of ${this.stops.length}`);
    setText(this.next, number + 1 < this.stops.length ? "next" : "done");
    this.back.hidden = number === 0;
    this.root.hidden = false;
  }

  end() {
    this.at = -1;
    this.root.hidden = true;
    this._light(null);
    this.shell.turnTo(0);
    this.shell.root.focus({ preventScroll: true });
  }

  /** @param {string | null} spot */
  _light(spot) {
    const { root } = this.shell;
    root.querySelectorAll(".sv-lit").forEach((each) => each.classList.remove("sv-lit"));
    if (spot) root.querySelector(`.sv-${spot}`)?.classList.add("sv-lit");
  }
}
