// Shell: the widget as a whole. Holds what is shown (clock, row, what is pointed at), moves the
// runs, and keeps step and row the same as the model's. The page around it belongs to others: keys
// count only in here, `dispose` leaves nothing.

import { element } from "../draw/elements.js";
import { Comparison } from "../film/compare.js";
import { Ahead } from "./ahead.js";
import { Controls } from "./controls.js";
import { Duo } from "./duo.js";
import { Frames } from "./frames.js";
import { actionOf, Help } from "./keys.js";
import { readTheme, themeChanged, watchLooks } from "./looks.js";
import { MapSection } from "./mapsection.js";
import { animateMoves, animateTurn } from "./motion.js";
import { Notice } from "./notice.js";
import { Player } from "./player.js";
import { placeIn, Run, samePlace } from "./run.js";
import { save } from "./saved.js";
import { Screen } from "./screen.js";
import { Tip } from "./tip.js";
import { Tour } from "./tour.js";

/** @import { Film, Model, Palette, Place } from "../types.d.ts" */
/** @import { Section } from "./section.js" */

export class Shell {
  /** @type {Palette} */ palette;
  /** @type {[event: string, listener: () => void][]} */ listeners = [];
  /** @type {Run[]} */ runs = [];
  /** @type {Controls} */ controls;

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
    /** The panel that the lens keeps. @type {string | null} */
    this.pinned = null;
    this.turned = 0; // 1: the rows stand by positions, 0: by slots
    this.large = false;
    this.causeSaid = false; // whether a jump has said why the two runs differ
    this.ends = new AbortController();
    const words = model.get("_difference");
    this.comparison = films.length > 1 ? new Comparison(films[0], films[1], words) : null;
    this.phases = films[0].phases;
    this.clocks = this.comparison ? this.comparison.clocks : films[0].steps;
    readTheme(this);
    this.tip = new Tip(root);
    this.notice = new Notice();
    this.help = new Help(this.comparison !== null);
    this.runs = films.map((film, number) => new Run(this, film, number));
    this.duo = this.comparison ? new Duo(this) : null;
    /** The panel of the batch, or of both. @type {Section} */
    this.batch = this.duo?.section ?? this.runs[0].sections[0];
    this.frames = new Frames((sections) => this._paint(sections));
    this.player = new Player(this);
    this.tour = new Tour(this);
    this.controls = new Controls(this);
    this.batch.addTools(this.controls.zooms());
    this.map = new MapSection(this);
    this.ahead = new Ahead(this);
    const shown = element("div", { class: "sv-runs" }, this.duo?.root ?? this.runs[0].root);
    const { root: top, two } = this.controls;
    const over = [this.tour.root, this.tip.root, this.help.root];
    root.replaceChildren(top, this.map.root, ...two, shown, ...over);
    root.classList.toggle("sv-compared", this.comparison !== null);
    this.row = Math.max(model.get("row") ?? 0, 0);
    this._listen();
    this.screen = new Screen(this);
    this.controls.updatePlay();
    this._show(this._clamp(model.get("step") ?? 0), false);
  }

  dispose() {
    this.ends.abort();
    this.player.play(false);
    this.frames.stop();
    for (const [event, listener] of this.listeners) this.model.off(event, listener);
    this.runs.forEach((run) => run.dispose());
    this.duo?.section.dispose();
    this.map.dispose();
  }

  _listen() {
    const { signal } = this.ends;
    this.listeners = [
      ["change:step", () => this._show(this._clamp(this.model.get("step")), false)],
      ["change:row", () => this._pickRow(Math.max(this.model.get("row"), 0))],
      ["change:theme", () => themeChanged(this)],
    ];
    for (const [event, listener] of this.listeners) this.model.on(event, listener);
    this.root.addEventListener("keydown", (event) => this._key(event), { signal });
    watchLooks(this);
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
    return this.comparison?.stepOf(run.number, clock) ?? clock;
  }
  /**
   * @param {Run} run
   * @param {number} step
   */
  clockOf(run, step) {
    return this.comparison?.clockOf(run.number, step) ?? step;
  }

  /**
   * @param {number} clock
   * @param {number} [row] of the first run
   */
  go(clock, row = this.row) {
    const next = this._clamp(clock);
    if (next === this.clock && row === this.row) return;
    this.way = Math.sign(next - this.clock) || this.way;
    this.row = row;
    this._show(next, next === this.clock + 1);
    this.frames.paintAtOnce();
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
    this.map.map.follow();
    this.tip.show(null);
    this.notice.clear();
    save(this.model, { step: clock, row: this.row });
    this.touchAll();
    if (moving.some(Boolean)) animateMoves(this);
  }

  /**
   * Where the runs are then; whether each one's K/V is to be seen moving.
   * @param {number} clock
   * @param {boolean} animate
   */
  move(clock, animate) {
    const [first, second] = this.runs;
    const step = this.stepOf(first, clock);
    const calm = !animate || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const moving = [first.show(step, this._rowIn(first, step), !calm)];
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
    return run.show(step, row < 0 ? this._rowIn(run, step) : row, animate);
  }

  /**
   * The chosen row, or the last one where there are fewer.
   * @param {Run} run
   * @param {number} step
   */
  _rowIn(run, step) {
    return Math.max(Math.min(this.row, run.film.rows(step).length - 1), 0);
  }

  /** @param {boolean} byTokens */
  setByTokens(byTokens) {
    if (!this.comparison) return;
    this.comparison.byTokens = byTokens;
    this._show(this.clock, false);
  }

  // -- what is chosen and pointed at

  /** @param {number | null} request chosen in both runs */
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
    this.frames.paintAtOnce();
  }

  /**
   * @param {Run} run
   * @param {Place | null} place
   */
  point(run, place) {
    if (samePlace(run.view.hover, place)) return;
    for (const each of this.runs)
      each.view.hover = each === run ? place : placeIn(each, run, place);
    this.touchAll();
  }

  /** @param {string | null} name of the panel that the lens keeps; null: it follows the phase */
  pin(name) {
    this.pinned = name;
    this.runs.forEach((run) => run.turnLens());
    this.touchAll();
    this.frames.paintAtOnce();
  }

  /** @param {number} to 0: rows stand by slots, 1: by positions */
  turnTo(to) {
    this.turned = to;
    animateTurn(this, to);
  }

  showTables() {
    const shown = !this.sections.every((section) => section.asTable);
    this.sections.forEach((section) => section.showTable(shown));
  }

  // -- drawing

  /** @returns {Section[]} */
  get sections() {
    const both = this.duo ? [this.duo.section] : [];
    return [this.map, ...both, ...this.runs.flatMap((run) => run.sections)];
  }

  touchAll() {
    this.sections.forEach((section) => this.frames.touch(section));
  }

  /** @param {Section[]} sections */
  _paint(sections) {
    const drawn = sections.map((section) => section.paint());
    sections.forEach((section) => section.tell());
    this.controls.update();
    this.runs.forEach((run, n) => {
      run.tell(n ? this.missing : null, this.comparison?.over(n, this.clock) ?? false);
    });
    Object.assign(this.root.dataset, { step: this.clock, row: this.runs[0].view.row });
    if (drawn.every(Boolean)) this.root.dataset.ready = "";
    this.ahead.plan();
  }
}
