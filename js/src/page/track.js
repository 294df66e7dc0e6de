// Track: the slider over the steps, and under it marks where something happens.

import { element, setAttribute } from "../draw/elements.js";
import { counted } from "../draw/words.js";

/** @import { Shell } from "./shell.js" */
/** @import { Run } from "./run.js" */

const MARKS = 40; // of a kind under the slider, at most

export class Track {
  /** @type {{ mark: HTMLElement, run: Run, step: number }[]} */ marks = [];

  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
    const input = () => shell.go(Number(this.slider.value));
    const range = { type: "range", min: "0", max: String(shell.clocks - 1), step: "1", value: "0" };
    this.slider = element("input", { ...range, "aria-label": "step", on: { input } });
    const lanes = shell.runs.map((run) =>
      element("div", { class: "sv-marks", "aria-hidden": "true" }, ...this._marks(run)),
    );
    this.root = element("div", { class: "sv-track" }, this.slider, ...lanes);
  }

  /**
   * Steps of a kind that would stand on each other share a mark.
   * @param {Run} run
   */
  _marks(run) {
    const width = Math.ceil(run.film.steps / MARKS);
    const groups = new Map();
    for (const { step, kind } of run.film.marks()) {
      const key = `${kind} ${Math.floor(step / width)}`;
      groups.set(key, [...(groups.get(key) ?? []), step]);
    }
    return [...groups].map(([key, steps]) => this._mark(run, key.split(" ")[0], steps));
  }

  /**
   * The clock of a step may change with the way in which two runs are in step, so marks are placed
   * by `placeMarks`.
   * @param {Run} run
   * @param {string} kind
   * @param {number[]} steps
   */
  _mark(run, kind, steps) {
    const { film } = run;
    const [step] = steps;
    const last = steps[steps.length - 1];
    const [sign, word] = kind === "eos" ? ["■", "EOS"] : ["▲", "violation"];
    /** @param {number} at */
    const where = (at) => `round ${film.round(at)}, ${film.phaseName(at)}`;
    const more = steps.length > 1 ? `, to ${where(last)}, in ${counted(steps.length, "step")}` : "";
    const title = `${word}: ${where(step)}${more}`;
    const mark = element(
      "span",
      { class: `sv-mark sv-${kind}`, title, on: { click: () => this.shell.goTo(run, step) } },
      sign,
    );
    this.marks.push({ mark, run, step });
    return mark;
  }

  /** @param {number} clock */
  _place(clock) {
    return `${(100 * clock) / Math.max(this.shell.clocks - 1, 1)}%`;
  }

  /** Where the run is now, and in words for those who hear it. */
  update() {
    const { clock, clocks, phases, runs } = this.shell;
    const [{ film, view }] = runs;
    this.slider.value = String(clock);
    this.slider.style.setProperty("--sv-done", this._place(clock));
    const round = Math.floor(clock / phases);
    const last = clocks / phases - 1;
    const place = `round ${round} of 0 to ${last}, ${film.phaseName(view.step)}`;
    setAttribute(this.slider, "aria-valuetext", place);
  }

  placeMarks() {
    for (const { mark, run, step } of this.marks)
      mark.style.left = this._place(this.shell.clockOf(run, step));
  }
}
