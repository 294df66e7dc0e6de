// Lens: one panel beside the batch. It follows the phase until the reader pins one, with a click on
// its name. Panels without anything to say have no name here.

import { element, setAttribute, setText } from "../draw/elements.js";

/** @import { Section } from "./section.js" */

/**
 * A panel of the lens, and the phases that it belongs to.
 * @typedef {{ name: string, word: string, section: Section, phases: number[] }} Entry
 */

/**
 * Which panel is to be seen: the pinned one, else that of the phase, else the first with anything
 * to say.
 * @param {{ name: string, phases: number[], empty: boolean }[]} entries
 * @param {number} phase
 * @param {string | null} pinned
 */
export function chosen(entries, phase, pinned) {
  const open = entries.filter(({ empty }) => !empty);
  const found =
    open.find(({ name }) => name === pinned) ??
    open.find(({ phases }) => phases.includes(phase)) ??
    open[0];
  return found?.name ?? null;
}

export class Lens {
  /**
   * @param {Entry[]} entries
   * @param {(name: string | null) => void} pin
   */
  constructor(entries, pin) {
    this.entries = entries;
    /** @type {string | null} */
    this.shown = null;
    /** @type {string | null} */
    this.pinned = null;
    this.empty = entries.map(() => false);
    this.tabs = entries.map(({ name, word }) => {
      const click = () => pin(this.pinned === name ? null : name);
      const attributes = {
        type: "button",
        class: "sv-tab",
        "aria-pressed": "false",
        on: { click },
      };
      return element("button", { ...attributes, "data-lens": name }, word);
    });
    this.said = element("span", { class: "sv-pinned", "aria-hidden": "true" });
    this.bar = element(
      "div",
      { class: "sv-tabs", role: "group", "aria-label": "lens" },
      ...this.tabs,
      this.said,
    );
    this.inside = element(
      "div",
      { class: "sv-inside", tabindex: "0", role: "group", "aria-label": "what the lens shows" },
      ...entries.map(({ section }) => section.root),
    );
    this.root = element("div", { class: "sv-lens" }, this.bar, this.inside);
  }

  /**
   * To be called before the sections are painted: those that are not seen are not drawn.
   * @param {number} phase
   * @param {string | null} pinned
   */
  update(phase, pinned) {
    const known = this.entries.map(({ name, phases, section }) => ({
      name,
      phases,
      empty: section.panel.empty(),
    }));
    this.pinned = pinned;
    const before = this.entries.find(({ name }) => name === this.shown)?.section;
    this.shown = chosen(known, phase, pinned);
    this.entries.forEach(({ name, section }, n) => {
      section.aside = name !== this.shown;
      section.width ||= before?.width ?? 0; // all are as wide
      this.empty[n] = known[n].empty;
    });
  }

  /** What the update found, for those who look at the page. */
  tell() {
    this.entries.forEach(({ name, section }, n) => {
      const shown = name === this.shown;
      if (shown) setAttribute(this.tabs[n], "aria-current", "true");
      else this.tabs[n].removeAttribute("aria-current");
      if (this.tabs[n].hidden !== this.empty[n]) this.tabs[n].hidden = this.empty[n];
      setAttribute(this.tabs[n], "aria-pressed", String(name === this.pinned));
      const hidden = !shown || this.empty[n];
      if (section.root.hidden !== hidden) section.root.hidden = hidden;
    });
    setText(this.said, this.pinned ? "pinned" : "follows");
  }
}
