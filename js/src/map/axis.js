// Axis: from left to right of the map, in rounds or in ms: which part of it is seen, and where in
// it the rounds of a run lie. Knows no pixels but the width that it is given.

import { SECONDS_FROM } from "../draw/words.js";

/** @import { Range } from "../types.d.ts" */
/** @import { Tally } from "../film/tally.js" */

const FEWEST = 4; // rounds that are seen at the closest
const STEPS = [1, 2, 5, 10];
const TICK = 64; // px between two numbers, about

export class Axis {
  /** @param {Tally[]} tallies */
  constructor(tallies) {
    this.tallies = tallies;
    this.canTime = tallies.every(({ timed }) => timed);
    this.byTime = false;
    this.from = 0;
    this.to = this.end;
  }

  // Where the longest run ends.
  get end() {
    return Math.max(...this.tallies.map((tally) => this.start(tally, tally.rounds)), 1e-6);
  }
  get zoomed() {
    return this.to - this.from < this.end * (1 - 1e-9);
  }

  /**
   * Where a round of a run begins, and `rounds` where the run ends.
   * @param {Tally} tally
   * @param {number} round
   */
  start(tally, round) {
    return this.byTime ? tally.starts[round] : round;
  }

  /**
   * The round of a run at a place; -1 before the run, its number of rounds behind it.
   * @param {Tally} tally
   * @param {number} value
   */
  roundAt(tally, value) {
    if (value < Math.min(this.start(tally, 0), this.end)) return -1;
    if (!this.byTime) return Math.min(Math.floor(value), tally.rounds);
    return lastStart(tally.starts, value);
  }

  /**
   * The step of a run at a place: its round, and the phase in it.
   * @param {Tally} tally
   * @param {number} value
   */
  stepAt(tally, value) {
    const { phases } = tally.film;
    const round = Math.min(Math.max(this.roundAt(tally, value), 0), tally.rounds - 1);
    const ends = this.byTime
      ? tally.phaseEnds(round)
      : Array.from({ length: phases }, (_, phase) => (phase + 1) / phases);
    const phase = ends.findIndex((end) => value - this.start(tally, round) < end);
    return round * phases + (phase >= 0 ? phase : phases - 1);
  }

  /**
   * The rounds [first, stop) of a run that lie at least partly in a range of the axis.
   * @param {Tally} tally
   * @param {Range} range
   * @returns {Range}
   */
  roundsIn(tally, [low, high]) {
    const first = Math.max(this.roundAt(tally, low), 0);
    const last = this.roundAt(tally, high);
    const inside = last < tally.rounds && this.start(tally, last) < high - 1e-9;
    const stop = Math.min(last + (inside ? 1 : 0), tally.rounds);
    return [Math.min(first, stop), stop];
  }

  /**
   * @param {number} value
   * @param {number} room
   */
  x(value, room) {
    return ((value - this.from) / (this.to - this.from)) * room;
  }
  /**
   * @param {number} x
   * @param {number} room
   */
  value(x, room) {
    return this.from + (x / room) * (this.to - this.from);
  }

  // -- what is seen

  /** @param {boolean} byTime */
  setByTime(byTime) {
    const [lead] = [...this.tallies].sort((a, b) => b.rounds - a.rounds);
    const seen = this.zoomed ? this.roundsIn(lead, [this.from, this.to]) : null;
    this.byTime = byTime && this.canTime;
    this.reset();
    if (seen) this._see(this.start(lead, seen[0]), this.start(lead, seen[1]));
  }

  reset() {
    this.from = 0;
    this.to = this.end;
  }

  /**
   * factor: above 1 for less of the run; about: what stays where it is.
   * @param {number} factor
   * @param {number} about
   */
  zoomBy(factor, about) {
    const span = this.to - this.from;
    const least = Math.min((FEWEST * this.end) / Math.max(...this.tallies.map((t) => t.rounds), 1));
    const wanted = Math.min(Math.max(span / factor, least), this.end);
    const share = Math.min(Math.max((about - this.from) / span, 0), 1);
    const before = this.from;
    this._see(about - share * wanted, about + (1 - share) * wanted);
    return before !== this.from || Math.abs(span - wanted) > 1e-9 * span;
  }

  /** @param {number} share of what is seen */
  panBy(share) {
    const by = share * (this.to - this.from);
    this._see(this.from + by, this.to + by);
  }

  /**
   * So that a range is seen, if it fits.
   * @param {Range} range
   */
  reveal([low, high]) {
    const span = this.to - this.from;
    if (low < this.from) this._see(low - span * 0.1, low + span * 0.9);
    else if (high > this.to) this._see(high - span * 0.9, high + span * 0.1);
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  _see(from, to) {
    const span = Math.min(to - from, this.end);
    this.from = Math.min(Math.max(from, 0), this.end - span);
    this.to = this.from + span;
  }

  /**
   * The numbers along the axis that are seen.
   * @param {number} room
   */
  ticks(room) {
    const step = this._step(room);
    const first = Math.ceil(this.from / step - 1e-9);
    const count = Math.floor(this.to / step + 1e-9) - first + 1;
    return Array.from({ length: Math.max(count, 0) }, (_, n) => (first + n) * step);
  }

  /**
   * One of these numbers with its unit: of times all in ms, or all in seconds, with the digits that
   * tell it from its neighbours.
   * @param {number} value
   * @param {number} room
   */
  label(value, room) {
    if (!this.byTime) return `${value}`;
    const [unit, name] = this.to >= SECONDS_FROM ? [1000, "s"] : [1, "ms"];
    const digits = Math.max(-Math.floor(Math.log10(this._step(room) / unit) + 1e-9), 0);
    return `${Number((value / unit).toFixed(digits))} ${name}`;
  }

  /**
   * From one number to the next.
   * @param {number} room
   */
  _step(room) {
    const rough = ((this.to - this.from) / Math.max(room, 1)) * TICK;
    const power = 10 ** Math.floor(Math.log10(rough));
    const wanted = power * (STEPS.find((step) => step * power >= rough) ?? 10);
    return this.byTime ? wanted : Math.max(Math.round(wanted), 1);
  }
}

/**
 * The last round that begins at or before a moment.
 * @param {number[]} starts
 * @param {number} value
 */
function lastStart(starts, value) {
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}
