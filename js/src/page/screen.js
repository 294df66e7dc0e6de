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
const SAVED = 14; // px that gaps give up where there is no room for the legend
const LEAST_ROOM = 260;
const SIZES = [1.4, 1.35, 1.3, 1.25, 1.2, 1.15, 1.1]; // of the presentation: the largest that fits, or the least
const BESIDE_FROM = 700; // px of a run from which the lens stands beside the batch

export class Screen {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
    /** Whether the map is low; null until the reader says so. @type {boolean | null} */
    this.low = null;
    this.seen = "";
    this.full = false; // what the reader asked for
    this.scale = 1;
    this.saved = 0; // px that gaps and sentences give up where there is no room for the legend
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

  /** @param {number} scale */
  _setScale(scale) {
    this.scale = scale;
    this.shell.root.style.zoom = scale === 1 ? "" : String(scale);
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

  /** px; two runs are as wide as both. */
  get _width() {
    const { shell } = this;
    return (shell.duo ?? shell.runs[0]).root.clientWidth;
  }

  /** @param {boolean} [always] */
  refit(always = false) {
    const { shell } = this;
    const fills = shell.root.matches(":fullscreen, .sv-window");
    const whole = fills ? window.innerHeight : frameHeight(shell.root);
    const seen = () => [this._width, whole, fills, this.low].join();
    if (!this._width || (seen() === this.seen && !always)) return;
    const found = this._scaled(whole);
    this.seen = seen();
    this._take(found, this._width >= BESIDE_FROM);
  }

  /**
   * How the parts share the height; a presentation is as large as it can be without scrolling.
   * @param {number} whole px of the window or of the notebook
   */
  _scaled(whole) {
    const { large } = this.shell;
    for (const size of large ? SIZES : []) {
      this._setScale(size);
      const found = this._dense(whole);
      if (found.fits && this._width >= BESIDE_FROM) return found;
    }
    this._setScale(large ? SIZES[SIZES.length - 1] : 1);
    return this._dense(whole);
  }

  /**
   * Two runs have room for fewer open rows, and then for lower ones.
   * @param {number} whole
   */
  _dense(whole) {
    const { shell } = this;
    const [usual, small] = [false, true].map((tight) =>
      shell.runs.map((run) => run.reserve(this._width, tight)),
    );
    shell.runs.forEach((run) => run.reserve(this._width, false));
    this.saved = SAVED + Math.min(...usual.map((height, n) => height - small[n]));
    let found = this._fitted(whole, 0);
    for (const level of shell.duo ? [1, 2] : []) {
      if (found.tight) found = this._fitted(whole, level);
    }
    return found;
  }

  /**
   * @param {number} whole
   * @param {number} dense how low the rows of two runs are
   */
  _fitted(whole, dense) {
    const { map, batch, duo, controls, runs, root } = this.shell;
    for (const { view } of runs) view.dense = dense;
    const stage = /** @type {Stage | PairStage} */ (batch.panel);
    const inside = batch.width || this._width * (this._width < BESIDE_FROM ? 1 : 0.6);
    const said = duo?.said ?? runs[0].words;
    const head = controls.height + said.offsetHeight + (duo ? duo.around + AROUND_TWO : 0);
    const legend = batch.under[0].height(inside);
    return fit({
      frame: Math.floor(whole / this.scale),
      rest: AROUND + head + stage.around(inside) + batch.head.offsetHeight + legend,
      legend: legend + 4 + this.saved,
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
  _take({ low: lowMap, tight, row }, beside) {
    const { shell } = this;
    shell.map.setLow(beside ? lowMap : (this.low ?? false));
    const low = beside && tight;
    shell.root.classList.toggle("sv-tight", low);
    for (const run of shell.runs) {
      run.reserve(this._width, low);
      run.view.tall = beside ? row : null;
      run.view.tight = low;
      run.turnLens();
      run.lens.tell();
    }
    shell.touchAll();
  }
}
