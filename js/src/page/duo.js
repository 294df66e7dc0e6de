// Duo: two runs on the page: their names, one panel of both batches, and of one of them the sentence
// and the lens.

import { element, setAttribute } from "../draw/elements.js";
import { Legend } from "../panels/legend.js";
import { PairStage } from "../panels/pairstage.js";
import { RUNS, runName } from "./run.js";
import { Section } from "./section.js";

/** @import { Comparison, Desk } from "../types.d.ts" */
/** @import { Shell } from "./shell.js" */

export class Duo {
  /** @type {HTMLElement} */ root;
  /** @type {HTMLElement} */ heads;
  /** @type {HTMLElement} */ said;

  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
    /** The run whose sentence and lens are seen. */
    this.told = 0;
    const views = shell.runs.map(({ view }) => view);
    const comparison = /** @type {Comparison} */ (shell.comparison);
    views.forEach((view, number) => {
      view.pair = { number, views, names: RUNS, comparison };
    });
    this.panel = new PairStage(views);
    this.section = new Section(this._desk(), this.panel, [new Legend(views[0])]);
    this.buttons = shell.runs.map(({ film }, number) => {
      const click = () => this.tell(number);
      const label = `sentence and lens of ${RUNS[number]}: ${runName(film)}`;
      const attributes = { type: "button", class: "sv-small", title: "b", "aria-label": label };
      return element("button", { ...attributes, on: { click } }, RUNS[number]);
    });
    this._makeRoot();
    this._update();
  }

  _makeRoot() {
    const { runs } = this.shell;
    const group = { class: "sv-group", role: "group", "aria-label": "run in the lens" };
    const lenses = element("div", { class: "sv-lenses" }, ...runs.map(({ lens }) => lens.root));
    this.heads = element("div", { class: "sv-heads" }, ...runs.map(({ root }) => root));
    this.said = element(
      "div",
      { class: "sv-told" },
      element("div", group, ...this.buttons),
      ...runs.map(({ words }) => words),
    );
    this.root = element(
      "div",
      { class: "sv-duo" },
      this.heads,
      this.said,
      element("div", { class: "sv-screen" }, this.section.root, lenses),
    );
  }

  /** @returns {Desk} */
  _desk() {
    const { shell } = this;
    return {
      palette: () => shell.palette,
      scale: () => shell.screen?.scale ?? 1,
      touch: (section) => shell.frames.touch(section),
      tip: (hint, event) => shell.tip.show(hint, event),
      point: (place) => shell.point(shell.runs[this.panel.run], place),
      pick() {},
      go: (step) => shell.go(step),
      happening: () => false,
      focus: () => shell.root.focus({ preventScroll: true }),
    };
  }

  /** @param {number} number of the run whose sentence and lens are to be seen */
  tell(number) {
    const { shell } = this;
    this.told = number;
    this._update();
    shell.runs.forEach((run) => run.turnLens());
    shell.touchAll();
    shell.frames.paintAtOnce();
  }

  _update() {
    this.shell.runs.forEach((run, number) => {
      const told = number === this.told;
      setAttribute(this.buttons[number], "aria-pressed", String(told));
      run.words.hidden = !told;
      run.lens.root.hidden = !told;
    });
  }

  /** px of what stands over the batches, but for the sentence. */
  get around() {
    return this.heads.offsetHeight + (this.shell.controls.two[0]?.offsetHeight ?? 0);
  }
}
