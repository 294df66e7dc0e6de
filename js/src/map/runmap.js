// RunMap: the whole run, or two on one axis: a lane for each request, rounds or time across, and
// where in it the reader is. Knows the shell, and no element of the page.

import { fontOf, measureText } from "../draw/text.js";
import { counted, milliseconds } from "../draw/words.js";
import { Axis } from "./axis.js";
import { LanePainter } from "./lanepaint.js";
import { aheadAt } from "./lead.js";
import { GUTTER, MapLayout } from "./layout.js";
import { PlacePainter } from "./placepaint.js";
import { StripPainter } from "./strippaint.js";
import { bothWords, describeMap, laneHint, mapTable, roundHint, totalsWords } from "./words.js";

/** @import { Pen, Range } from "../types.d.ts" */
/** @import { Shell } from "../page/shell.js" */
/** @import { Spot } from "./layout.js" */

export class RunMap {
  static id = "map";

  /**
   * @param {Shell} shell
   * @param {string[]} names of the runs
   */
  constructor(shell, names) {
    this.shell = shell;
    this.tallies = shell.runs.map(({ film }) => film.tally);
    this.names = names;
    this.lanes = shell.comparison?.lanes ?? false; // of one run
    this.axis = new Axis(this.tallies);
    this.axis.setByTime(names.length > 1); // by time it is seen which of two runs is faster
    this.firsts = this.tallies.map(() => 0); // the first lane that is seen
    this.low = false; // only low lanes
    /** @type {Range | null} */
    this.range = null; // of the axis
    /** @type {number | null} */
    this.anchor = null; // the round from which keys select
    const partings = shell.comparison?.partings ?? [];
    /** By run and request: the round in which its text parts from the other run's. */
    this.parts = this.tallies.map((tally) =>
      partings.map((index, request) => (index < 0 ? -1 : tally.roundOf(request, index))),
    );
    this._both = bothWords(this.tallies, names);
    this._described = describeMap(this.tallies, names);
  }

  // -- what it shows

  empty() {
    return !this.shell.clocks;
  }

  title() {
    const [tally] = this.tallies;
    const requests = counted(tally.lanes.length, "request");
    if (this.tallies.length > 1) return `Map of both ${this.lanes ? "lanes" : "runs"}: ${requests}`;
    const time = tally.timed ? `, ${milliseconds(tally.starts[tally.rounds])}` : "";
    return `Map of the run: ${requests}, ${counted(tally.rounds, "round")}${time}`;
  }

  describe() {
    return this._described;
  }

  table() {
    return mapTable(this.tallies, this._both);
  }

  /** A line {name, head, words} for each run, of the range or of everything. */
  totals() {
    const lines = this.tallies.map((tally, run) => {
      const [first, stop] = this.range ? this.axis.roundsIn(tally, this.range) : [0, tally.rounds];
      const name = this.tallies.length > 1 ? `${this.names[run]}: ` : "";
      return { name, ...totalsWords(tally, tally.totals(first, stop)) };
    });
    return { lines, last: this._both };
  }

  /** What the lanes look like depends on this. */
  lanesKey() {
    const { byTime, from, to } = this.axis;
    return [this.low, byTime, from, to, ...this.firsts].join();
  }

  key() {
    const places = this.shell.runs.map(({ view }) => `${view.step}/${view.row}`);
    return [this.lanesKey(), ...places, ...(this.range ?? [])].join();
  }

  /**
   * @param {number} width
   * @param {boolean} [low]
   */
  layout(width, low = this.low) {
    const runs = this.tallies.map((tally, run) => ({
      count: tally.lanes.length,
      first: this.firsts[run],
      timed: tally.timed && (!low || this.lanes),
      copies: tally.copies && !low,
    }));
    return new MapLayout(width, runs, low, this.lanes);
  }

  /** @param {number} width */
  height(width) {
    return this.layout(width).height;
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    this.drawPlace(pen, width, () => this.drawLanes(pen, width));
  }

  /**
   * What stays as long as `lanesKey` does.
   * @param {Pen} pen
   * @param {number} width
   */
  drawLanes(pen, width) {
    const { axis, tallies, parts } = this;
    const layout = this.layout(width);
    const strips = new StripPainter(pen, { axis, layout });
    tallies.forEach((tally, run) => {
      new LanePainter(pen, { axis, layout, tally, run, parts: parts[run] }).paint();
      if (!this.low || this.lanes) strips.paint(tally, run, this.low);
    });
    if (layout.lead !== null) strips.lead(tallies);
  }

  /**
   * Where the reader is, under and over the lanes.
   * @param {Pen} pen
   * @param {number} width
   * @param {() => void} lanes
   */
  drawPlace(pen, width, lanes) {
    const { axis } = this;
    const layout = this.layout(width);
    const painter = new PlacePainter(pen, this, layout);
    painter.under();
    lanes();
    new StripPainter(pen, { axis, layout }).ruler(painter.playhead());
    painter.over();
  }

  // -- what lies under a point

  /**
   * @param {number} x
   * @param {number} width
   */
  value(x, width) {
    return this.axis.value(x - GUTTER, this.layout(width).room);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @returns {Spot & { round: number, value: number }}
   */
  spot(x, y, width) {
    const found = this.layout(width).under(y);
    const value = this.value(x, width);
    const run = found.part === "ruler" || found.part === "lead" ? this.lead : found.run;
    return { ...found, run, value, round: this.axis.roundAt(this.tallies[run], value) };
  }

  /** The run that takes more rounds, whose clock counts. */
  get lead() {
    return this.shell.comparison?.lead ?? 0;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hint(x, y, width) {
    const { part, run, request, round, value } = this.spot(x, y, width);
    const tally = this.tallies[run];
    if (x < GUTTER) return request === null ? null : `request ${request}`;
    if (part === "lead") return this._leadHint(value);
    if (part === "none" || round < 0 || round >= tally.rounds) return null;
    if (part === "lane" && request !== null) return laneHint(tally, request, round);
    return roundHint(tally, round);
  }

  /** @param {number} value */
  _leadHint(value) {
    const ahead = aheadAt(this.axis, this.tallies, value);
    if (!ahead) return "both runs have as many tokens";
    return `the ${ahead > 0 ? "first" : "second"} run is ${counted(Math.abs(ahead), "token")} ahead`;
  }

  hit() {
    return null;
  }

  // -- what the reader does

  /** So that the step and the row that are shown are seen. */
  follow() {
    if (!this.shell.clocks) return;
    const tally = this.tallies[this.lead];
    const round = this._roundOf(this.lead);
    const { axis } = this;
    axis.reveal([axis.start(tally, round), axis.start(tally, round + 1)]);
    if (this.anchor !== null) this._selectFrom(this.anchor);
    const layout = this.layout(800);
    this.shell.runs.forEach((run, n) => {
      const request = run.requestOf(run.view.row);
      if (request !== null) this.firsts[n] = layout.firstFor(n, request);
    });
  }

  /** @param {number} run */
  _roundOf(run) {
    const { film, view } = this.shell.runs[run];
    return film.round(view.step);
  }

  /** @param {number} anchor */
  _selectFrom(anchor) {
    const tally = this.tallies[this.lead];
    const now = this._roundOf(this.lead);
    const { axis } = this;
    const [first, last] = [Math.min(anchor, now), Math.max(anchor, now)];
    this.range = [axis.start(tally, first), axis.start(tally, last + 1)];
  }

  /** Begins to select rounds at the one that is shown; the next time, ends there. */
  mark() {
    if (this.anchor !== null) {
      this.anchor = null;
      return;
    }
    this.anchor = this._roundOf(this.lead);
    this._selectFrom(this.anchor);
  }

  /** @param {Range} range of the axis */
  select(range) {
    this.anchor = null;
    this.range = range;
  }

  clear() {
    this.anchor = null;
    this.range = null;
  }

  /** @param {boolean} byTime */
  setByTime(byTime) {
    const tally = this.tallies[this.lead];
    const { axis } = this;
    const rounds = this.range && axis.roundsIn(tally, this.range);
    axis.setByTime(byTime);
    if (rounds) this.range = [axis.start(tally, rounds[0]), axis.start(tally, rounds[1])];
    this.follow();
  }

  /**
   * What keeps its place when keys zoom: the selected rounds, or the one that is shown.
   */
  get middle() {
    if (this.range) return (this.range[0] + this.range[1]) / 2;
    const round = this._roundOf(this.lead);
    const tally = this.tallies[this.lead];
    return (this.axis.start(tally, round) + this.axis.start(tally, round + 1)) / 2;
  }

  /**
   * Lanes that do not all fit slide up and down. Returns whether they do.
   * @param {number} run
   * @param {number} lanes
   */
  scroll(run, lanes) {
    const { count, shown } = this.layout(800).groups[run];
    const before = this.firsts[run];
    this.firsts[run] = Math.min(Math.max(before + lanes, 0), count - shown);
    return this.firsts[run] !== before;
  }

  /**
   * px of the playhead's words
   * @param {string} words
   */
  measure(words) {
    return measureText(words, fontOf({ size: 11, weight: 700 }));
  }
}
