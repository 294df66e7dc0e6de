// Screen: how much of the reader's screen the view takes, and how its parts share it: the whole
// screen or a place in the page, larger letters for a projector, a whole map or a low one.

import { fit, frameHeight } from "./fit.js";

/** @import { PairStage } from "../panels/pairstage.js" */
/** @import { Stage } from "../panels/stage.js" */
/** @import { Shell } from "./shell.js" */

const AROUND = 72; // px of margins and borders between the parts
const MAP_AROUND = 74; // px of the heading of the map, its totals and its margins
const LENS_HEAD = 46; // px of the heading of a panel in the lens, and its margins
const AROUND_TWO = 24; // px of margins that two runs have besides
const LEAST_ROOM = 260;
const BESIDE_FROM = 700; // px of a run from which the lens stands beside the batch

export class Screen {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
    /** Whether the map is low; null until the reader says so. @type {boolean | null} */
    this.low = null;
    this.seen = "";
    this.full = false; // what the reader asked for
    const { signal } = shell.ends;
    this.observer = new ResizeObserver(() => this.refit());
    this.observer.observe(shell.root);
    this.lenses = new ResizeObserver(() => this._measureLenses());
    for (const { lens } of shell.runs) this.lenses.observe(lens.inside);
    signal.addEventListener("abort", () => {
      this.observer.disconnect();
      this.lenses.disconnect();
    });
    window.addEventListener("resize", () => this.refit(), { signal });
    document.addEventListener("fullscreenchange", () => this._fullChanged(), { signal });
  }

  toggleMap() {
    this.low = !this.shell.map.low;
    this.refit(true);
  }

  /** Where a page may not take the whole screen, the view takes the whole window. */
  async toggleFull() {
    const { root } = this.shell;
    this.full = !this.full;
    this._fillWindow(false);
    try {
      if (this.full) await root.requestFullscreen();
      if (!this.full && document.fullscreenElement === root) await document.exitFullscreen();
    } catch {
      this._fillWindow(this.full);
    }
  }

  _fullChanged() {
    const { root } = this.shell;
    if (!root.classList.contains("sv-window")) this.full = document.fullscreenElement === root;
    this.refit(true);
  }

  /** @param {boolean} on */
  _fillWindow(on) {
    const { classList } = this.shell.root;
    if (classList.contains("sv-window") === on) return;
    classList.toggle("sv-window", on);
    this.refit(true);
  }

  togglePresent() {
    const { shell } = this;
    shell.large = !shell.large;
    shell.root.classList.toggle("sv-large", shell.large);
    this.refit(true);
  }

  get scale() {
    return this.shell.large ? 1.4 : 1; // as in the style sheet
  }

  /** What the lens shows may be as high as the lens. */
  _measureLenses() {
    for (const { lens, view } of this.shell.runs) {
      const room = Math.max(lens.inside.clientHeight - LENS_HEAD, LEAST_ROOM);
      if (room === view.room) continue;
      view.room = room;
      this.shell.touchAll();
    }
  }

  /** @param {boolean} [always] */
  refit(always = false) {
    const { shell } = this;
    const { clientWidth: width } = (shell.duo ?? shell.runs[0]).root;
    const fills = shell.root.matches(":fullscreen, .sv-window");
    const whole = fills ? window.innerHeight : frameHeight(shell.root);
    const frame = Math.floor(whole / this.scale);
    const seen = [width, frame, fills, this.low].join();
    if (!width || (seen === this.seen && !always)) return;
    this.seen = seen;
    shell.runs.forEach((run) => run.reserve(width));
    // Two runs have room for fewer open rows, and then for lower ones.
    const levels = shell.duo ? [0, 1, 2] : [0];
    let found = null;
    for (const level of levels) {
      for (const { view } of shell.runs) view.dense = level;
      found = this._fit(width, frame);
      if (!found.tight) break;
    }
    if (!found) return;
    this._take(found, width >= BESIDE_FROM);
  }

  /**
   * @param {number} width
   * @param {number} frame
   */
  _fit(width, frame) {
    const { map, batch, duo, controls, runs, root } = this.shell;
    const stage = /** @type {Stage | PairStage} */ (batch.panel);
    const inside = batch.width || width * (width < BESIDE_FROM ? 1 : 0.6);
    const said = duo?.said ?? runs[0].words;
    const head =
      controls.root.offsetHeight + said.offsetHeight + (duo ? duo.around + AROUND_TWO : 0);
    const legend = batch.under[0].height(inside);
    return fit({
      frame,
      rest: AROUND + head + stage.around(inside) + batch.head.offsetHeight + legend,
      legend: legend + 4,
      map: map.fullHeight(root.clientWidth) + MAP_AROUND,
      lowMap: map.lowHeight(root.clientWidth),
      rows: stage.openRows,
      low: this.low,
    });
  }

  /**
   * @param {{ low: boolean, tight: boolean, row: number }} found
   * @param {boolean} beside
   */
  _take({ low, tight, row }, beside) {
    const { shell } = this;
    shell.map.setLow(beside ? low : (this.low ?? false));
    shell.root.classList.toggle("sv-tight", beside && tight);
    for (const { view } of shell.runs) view.tall = beside ? row : null;
    shell.touchAll();
  }
}
