// Shell: the widget as a whole. Holds what is shown (clock, row, what is pointed at), moves the
// runs, draws once a frame what has changed, and keeps step and row the same as the model's. The
// page around it belongs to others: keys count only in here, `dispose` leaves nothing.

import { element } from "../draw/elements.js";
import { readPalette } from "../draw/pen.js";
import { darkPage, watchTheme } from "../draw/theme.js";
import { Comparison } from "../film/compare.js";
import { Ahead } from "./ahead.js";
import { Controls } from "./controls.js";
import { actionOf, Help, SPEEDS } from "./keys.js";
import { Run } from "./run.js";
import { Tip } from "./tip.js";

/** @import { Film, LaneRun, Model, Palette, Place } from "../types.d.ts" */
/** @import { Section } from "./section.js" */

const MOTION_MS = 260;

export class Shell {
  /** @type {Palette} */ palette;
  /** @type {[event: string, listener: () => void][]} */ listeners = [];
  /** @type {Run[]} */ runs = [];
  /** @type {Controls} */ controls;
  /** @type {number | undefined} */ timer;

  /**
   * @param {Model} model
   * @param {HTMLElement} root
   * @param {Film[]} films
   */
  constructor(model, root, films) {
    this.model = model;
    this.root = root;
    this.clock = 0;
    this.way = 1;
    this.row = 0;
    /** @type {number | null} */
    this.request = null;
    /** @type {number | null} */
    this.missing = null;
    this.playing = false;
    this.speed = 1;
    /** @type {Set<Section>} */
    this.dirty = new Set();
    this.frame = 0;
    this.painted = 0;
    this.ends = new AbortController();
    this.comparison = films.length > 1 ? new Comparison(films[0], films[1]) : null;
    this.phases = films[0].phases;
    this.clocks = this.comparison ? this.comparison.clocks : films[0].steps;
    this._readTheme();
    this.tip = new Tip(root);
    this.help = new Help(
      this.comparison !== null,
      `sv-${crypto.getRandomValues(new Uint32Array(1))[0]}`,
    );
    this.runs = films.map((film, number) => new Run(this, film, number));
    this.controls = new Controls(this);
    this.ahead = new Ahead(this);
    const shown = element("div", { class: "sv-runs" }, ...this.runs.map((run) => run.root));
    root.replaceChildren(this.controls.root, shown, this.tip.root, this.help.root);
    root.classList.toggle("sv-compared", this.comparison !== null);
    this.row = Math.max(model.get("row") ?? 0, 0);
    this._listen();
    this.controls.updatePlay();
    this._show(this._clamp(model.get("step") ?? 0), false);
  }

  dispose() {
    this.ends.abort();
    this.play(false);
    cancelAnimationFrame(this.frame);
    for (const [event, listener] of this.listeners) this.model.off(event, listener);
    this.runs.forEach((run) => run.dispose());
  }

  _listen() {
    const { signal } = this.ends;
    this.listeners = [
      ["change:step", () => this._show(this._clamp(this.model.get("step")), false)],
      ["change:row", () => this._pickRow(Math.max(this.model.get("row"), 0))],
      ["change:theme", () => this._themeChanged()],
    ];
    for (const [event, listener] of this.listeners) this.model.on(event, listener);
    this.root.addEventListener("keydown", (event) => this._key(event), { signal });
    watchTheme(() => this._themeChanged(), signal);
    // Another screen may have other pixels.
    window.addEventListener("resize", () => this.touchAll(), { signal });
    window.addEventListener("beforeprint", () => this._print("light"), { signal });
    window.addEventListener("afterprint", () => this._print(null), { signal });
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    const action = actionOf(event, this.comparison !== null);
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action(this);
  }

  // -- where we are

  /** @param {number} clock */
  _clamp(clock) {
    return Math.min(Math.max(Math.round(clock), 0), this.clocks - 1);
  }
  /**
   * @param {Run} run
   * @param {number} clock
   */
  stepOf(run, clock) {
    return this.comparison ? this.comparison.stepOf(run.number, clock) : clock;
  }
  /**
   * @param {Run} run
   * @param {number} step
   */
  clockOf(run, step) {
    return this.comparison ? this.comparison.clockOf(run.number, step) : step;
  }

  /** @param {number} clock */
  go(clock) {
    const next = this._clamp(clock);
    if (next === this.clock) return;
    this.way = Math.sign(next - this.clock);
    this._show(next, next === this.clock + 1);
    this._paintAtOnce();
  }

  /**
   * @param {Run} run
   * @param {number} step
   */
  goTo(run, step) {
    this.go(this.clockOf(run, step));
  }

  /**
   * @param {number} clock
   * @param {boolean} animate
   */
  _show(clock, animate) {
    this.clock = clock;
    const moving = this.move(clock, animate);
    this.tip.show(null);
    this._save();
    this.touchAll();
    if (moving.some(Boolean)) this._animate();
  }

  /**
   * Where the runs are then; whether each one's K/V is to be seen moving.
   * @param {number} clock
   * @param {boolean} animate
   */
  move(clock, animate) {
    const [first, second] = this.runs;
    const step = this.stepOf(first, clock);
    const rows = first.film.rows(step).length;
    const calm = !animate || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const moving = [first.show(step, Math.max(Math.min(this.row, rows - 1), 0), !calm)];
    this.request = first.requestOf(first.view.row);
    if (second) moving.push(this._showSecond(second, this.stepOf(second, clock), !calm));
    return moving;
  }

  /**
   * @param {Run} run
   * @param {number} step
   * @param {boolean} animate
   */
  _showSecond(run, step, animate) {
    const row = run.film.rowOf(step, this.request ?? -1);
    this.missing = row < 0 ? this.request : null;
    return run.show(
      step,
      row >= 0 ? row : Math.max(Math.min(this.row, run.film.rows(step).length - 1), 0),
      animate,
    );
  }

  _save() {
    if (this.model.get("step") === this.clock && this.model.get("row") === this.row) return;
    this.model.set("step", this.clock);
    this.model.set("row", this.row);
    try {
      this.model.save_changes();
    } catch {
      /* no kernel any more: the page goes on without it */
    }
  }

  // -- what is chosen and pointed at

  /**
   * request: also chosen in the other run; row: of the run that was clicked.
   * @param {number | null} request
   */
  pick(request) {
    const [first] = this.runs;
    const row = first.film.rowOf(first.view.step, request ?? -1);
    if (row >= 0) this._pickRow(row);
  }

  /** @param {number} rows */
  pickBy(rows) {
    const { film, view } = this.runs[0];
    this._pickRow(Math.min(Math.max(view.row + rows, 0), film.rows(view.step).length - 1));
  }

  /** @param {number} row */
  _pickRow(row) {
    if (row === this.row && row === this.runs[0].view.row) return;
    this.row = row;
    this._show(this.clock, false);
    this._paintAtOnce();
  }

  /**
   * @param {Run} run
   * @param {Place | null} place
   */
  point(run, place) {
    const { hover } = run.view;
    if (
      hover === place ||
      (hover?.row === place?.row && hover?.slot === place?.slot && hover?.index === place?.index)
    )
      return;
    for (const each of this.runs)
      each.view.hover = each === run ? place : this._elsewhere(run, each, place);
    this.touchAll();
  }

  /**
   * The same token in the other run.
   * @param {Run} run
   * @param {Run} other
   * @param {Place | null} place
   */
  _elsewhere(run, other, place) {
    if (!place || place.row === null) return null;
    const request = run.requestOf(place.row);
    const row = request === null ? -1 : other.film.rowOf(other.view.step, request);
    if (row < 0) return null;
    const { index } = place;
    /** @param {LaneRun} lane */
    const own = (lane) => index !== null && index >= lane[3] && index < lane[3] + lane[1] - lane[0];
    const lane = other.film
      .lane(other.view.step, "tokens", row)
      .find((each) => each[5] === request && own(each));
    return { row, index, slot: lane && index !== null ? lane[0] + index - lane[3] : null };
  }

  // -- jumps

  /**
   * The clock at which something happens next, or happened last, in any run; null if it does not.
   * @param {string} what
   * @param {number} direction
   */
  target(what, direction) {
    const clocks = this.runs
      .map((run) => this._target(run, what, direction))
      .filter((clock) => clock !== null);
    return clocks.length ? (direction > 0 ? Math.min : Math.max)(...clocks) : null;
  }

  /**
   * @param {Run} run
   * @param {string} what
   * @param {number} direction
   */
  _target(run, what, direction) {
    const clocks = run.film.points(what).map((step) => this.clockOf(run, step));
    return (
      (direction > 0
        ? clocks.find((clock) => clock > this.clock)
        : clocks.findLast((clock) => clock < this.clock)) ?? null
    );
  }

  /**
   * @param {string} what
   * @param {number} direction
   */
  jump(what, direction) {
    const clock = this.target(what, direction);
    if (clock !== null) this.go(clock);
  }

  goToDifference() {
    const first = this.comparison?.first;
    const [run] = this.runs;
    if (!first) return;
    this.go(this.clockOf(run, first.step));
    this.pick(first.request);
  }

  /** @param {boolean} byTokens */
  setByTokens(byTokens) {
    if (!this.comparison) return;
    this.comparison.byTokens = byTokens;
    this._show(this.clock, false);
  }

  // -- time

  /** @param {boolean} on */
  play(on) {
    clearInterval(this.timer);
    this.playing = on && this.clocks > 1;
    if (this.playing && this.clock === this.clocks - 1) this.go(0);
    if (this.playing) this.timer = setInterval(() => this._tick(), 1000 / SPEEDS[this.speed]);
    this.controls?.updatePlay();
  }

  _tick() {
    if (this.clock < this.clocks - 1) this.go(this.clock + 1);
    if (this.clock === this.clocks - 1) this.play(false);
  }

  /** @param {number} number */
  setSpeed(number) {
    this.speed = Math.min(Math.max(number, 0), SPEEDS.length - 1);
    this.play(this.playing);
  }

  _animate() {
    const began = performance.now();
    const clock = this.clock;
    /** @param {number} now */
    const tick = (now) => {
      if (this.clock !== clock || this.ends.signal.aborted) return;
      const part = Math.min(Math.max((now - began) / MOTION_MS, 0), 1);
      const eased = 1 - (1 - part) ** 3;
      for (const run of this.runs) {
        if (run.view.progress === 1) continue;
        run.view.progress = eased;
        this.touch(run.sections[0]);
      }
      if (part < 1) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  // -- looks

  /** @param {number} direction */
  zoom(direction) {
    for (const { stage } of this.runs) direction ? stage.zoomBy(direction) : stage.reset();
    this.touchStages();
  }

  /** @param {number} slots */
  slide(slots) {
    for (const { stage } of this.runs) stage.panBy(slots);
    this.touchStages();
  }

  touchStages() {
    this.runs.forEach((run) => this.touch(run.sections[0]));
  }

  showTables() {
    const sections = this.runs.flatMap((run) => run.sections);
    const shown = !sections.every((section) => section.asTable);
    sections.forEach((section) => section.showTable(shown));
  }

  /** @param {string | null} [forced] */
  _readTheme(forced = null) {
    const wanted = forced ?? this.model.get("theme");
    this.root.dataset.theme =
      wanted === "light" || wanted === "dark" ? wanted : darkPage() ? "dark" : "light";
    this.palette = readPalette(this.root);
    this.runs.forEach((run) => {
      run.view.palette = this.palette;
    });
  }

  _themeChanged() {
    this._readTheme();
    this.touchAll();
  }

  /**
   * On paper everything is light.
   * @param {string | null} theme
   */
  _print(theme) {
    this._readTheme(theme);
    this.touchAll();
    this._paint();
  }

  // -- drawing

  /** @param {Section} section */
  touch(section) {
    this.dirty.add(section);
    this.frame ||= requestAnimationFrame(() => this._paint());
  }

  // For what a reader asked for: the work is done by the time the next frame begins. Of what comes
  // faster than frames do, such as from a slider that is dragged, the rest is left to that frame.
  _paintAtOnce() {
    if (this.painted) return;
    this.painted = requestAnimationFrame(() => {
      this.painted = 0;
    });
    this._paint();
  }

  touchAll() {
    this.runs.forEach((run) => run.sections.forEach((section) => this.touch(section)));
  }

  _paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const sections = [...this.dirty];
    this.dirty.clear();
    const drawn = sections.map((section) => section.paint());
    sections.forEach((section) => section.tell());
    this.controls?.update();
    /** @param {number} n */
    const over = (n) => this.comparison?.over(n, this.clock);
    this.runs.forEach((run, n) => run.tell(n ? this.missing : null, over(n) ?? false));
    Object.assign(this.root.dataset, { step: this.clock, row: this.runs[0].view.row });
    if (drawn.every(Boolean)) this.root.dataset.ready = "";
    this.ahead.plan();
  }
}
