// Rail: a button for each phase of the round, with its time.

import { element, setAttribute, setText } from "../draw/elements.js";
import { milliseconds } from "../draw/words.js";

/** @import { Shell } from "./shell.js" */

export class Rail {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
    const names = shell.runs[0].film.json.phases;
    /** @param {number} phase */
    const go = (phase) => () => shell.go(shell.clock - (shell.clock % shell.phases) + phase);
    this.times = names.map(() => element("span", { class: "sv-ms" }));
    this.phases = names.map((name, phase) => {
      const number = element(
        "span",
        { class: "sv-number", "aria-hidden": "true" },
        String(phase + 1),
      );
      const word = element("span", { class: "sv-phase" }, name);
      return element(
        "button",
        { type: "button", on: { click: go(phase) } },
        number,
        word,
        this.times[phase],
      );
    });
    this.root = element(
      "div",
      { class: "sv-rail", role: "group", "aria-label": "phases of the round" },
      ...this.phases,
    );
  }

  /**
   * @param {number} now
   * @param {number[]} ms
   */
  update(now, ms) {
    const { comparison, runs } = this.shell;
    const untimed = comparison || runs[0].film.json.gaps?.time; // a log without times
    this.phases.forEach((button, phase) => {
      if (phase === now) setAttribute(button, "aria-current", "step");
      else button.removeAttribute("aria-current");
      button.classList.toggle("sv-past", phase < now);
      setText(this.times[phase], untimed ? "" : milliseconds(ms[phase]));
    });
  }
}
