// StripPainter: what lies under the lanes: the time of each round by phase, the K/V that it copied,
// which of two runs is ahead, and the axis.

import { GUTTER } from "./layout.js";
import { leads } from "./lead.js";

/** @import { Pen } from "../types.d.ts" */
/** @import { Axis } from "./axis.js" */
/** @import { MapLayout } from "./layout.js" */
/** @import { Tally } from "../film/tally.js" */

const NARROWEST = 2; // px of a column; narrower rounds share one
const SMALL = { size: 10 };

export class StripPainter {
  /**
   * @param {Pen} pen
   * @param {{ axis: Axis, layout: MapLayout }} of
   */
  constructor(pen, { axis, layout }) {
    this.pen = pen;
    this.axis = axis;
    this.layout = layout;
    const { p } = pen;
    this.colours = [p.grey, p.draft, p.target, p.green, p.orange];
  }

  /**
   * The time and the bytes of a run's rounds.
   * @param {Tally} tally
   * @param {number} run
   * @param {boolean} low without the bytes
   */
  paint(tally, run, low) {
    const copies = tally.copies && !low;
    const { pen, layout } = this;
    const { time, bytes } = layout.groups[run];
    const { heights } = layout;
    const columns = this._columns(tally);
    const look = { ...SMALL, fill: pen.p.muted, align: "right" };
    pen.clip(GUTTER - 1, time - 2, layout.room + 2, bytes + heights.bytes - time + 4, () => {
      if (tally.begins && this.axis.byTime) this._bubbles(time, heights.time);
      if (tally.timed) this._times(tally, columns, time, heights.time);
      if (copies) this._bytes(tally, columns, bytes, heights.bytes);
    });
    if (tally.timed) pen.text("time", GUTTER - 8, time + heights.time / 2, look);
    if (copies) pen.text("K/V", GUTTER - 8, bytes + heights.bytes / 2, look);
  }

  /**
   * [first, stop) of the rounds of each column that is seen.
   * @param {Tally} tally
   */
  _columns(tally) {
    const { axis } = this;
    const [first, stop] = axis.roundsIn(tally, [axis.from, axis.to]);
    /** @type {[number, number][]} */
    const columns = [];
    for (let round = first; round < stop; round++) {
      const last = columns[columns.length - 1];
      if (last && this._x(tally, last[1]) - this._x(tally, last[0]) < NARROWEST) last[1]++;
      else columns.push([round, round + 1]);
    }
    return columns;
  }

  /**
   * @param {Tally} tally
   * @param {number} round
   */
  _x(tally, round) {
    return GUTTER + this.axis.x(this.axis.start(tally, round), this.layout.room);
  }

  /**
   * By time, a round is as wide as it took, and so is each phase; by rounds it is as high.
   * @param {Tally} tally
   * @param {[number, number][]} columns
   * @param {number} top
   * @param {number} height
   */
  _times(tally, columns, top, height) {
    const { pen, colours, axis } = this;
    for (const [first, stop] of columns) {
      const x = this._x(tally, first);
      const w = this._x(tally, stop) - x;
      const { ms, all } = tally.totals(first, stop);
      const gap = w >= 5 ? 1 : 0;
      if (axis.byTime && tally.begins) {
        this._spans(tally, [first, stop], top + 6, height - 6);
        continue;
      }
      let done = 0;
      ms.forEach((value, phase) => {
        const part = value / Math.max(all, 1e-9);
        const most = tally.slowest * (stop - first);
        const h = Math.min((value / most) * height, height - done);
        if (axis.byTime)
          pen.rect(x + done * (w - gap), top + 6, part * (w - gap), height - 6, {
            fill: colours[phase],
          });
        else if (h > 0) pen.rect(x, top + height - done - h, w - gap, h, { fill: colours[phase] });
        done += axis.byTime ? part : h;
      });
      if (!axis.byTime && all > tally.slowest * (stop - first) * 1.001)
        pen.rect(x, top + 3, w, 2, { fill: pen.p.panel });
    }
  }

  /**
   * What a lane does not cover with a phase is a bubble.
   * @param {number} top
   * @param {number} height
   */
  _bubbles(top, height) {
    const { pen, axis, layout } = this;
    const x = Math.max(GUTTER + axis.x(0, layout.room), GUTTER);
    const w = GUTTER + Math.min(axis.x(axis.end, layout.room), layout.room) - x;
    drawBubble(pen, x, top + 6, w, height - 6);
  }

  /**
   * The phases of a lane, at their places on the clock.
   * @param {Tally} tally
   * @param {[number, number]} rounds
   * @param {number} top
   * @param {number} height
   */
  _spans(tally, [first, stop], top, height) {
    const { pen, axis, layout, colours } = this;
    for (let round = first; round < stop; round++)
      tally.film.json.rounds[round].ms.forEach((value, phase) => {
        const begin = tally.begins?.[round][phase] ?? 0;
        const x = GUTTER + axis.x(begin, layout.room);
        const w = axis.x(begin + value, layout.room) - axis.x(begin, layout.room);
        pen.rect(x, top, w, height, { fill: colours[phase] });
      });
  }

  /**
   * @param {Tally} tally
   * @param {[number, number][]} columns
   * @param {number} top
   * @param {number} height
   */
  _bytes(tally, columns, top, height) {
    const { pen } = this;
    for (const [first, stop] of columns) {
      const bytes = tally.totals(first, stop).bytes ?? 0;
      if (!bytes) continue;
      const x = this._x(tally, first);
      const w = this._x(tally, stop) - x;
      const h = Math.max((bytes / (stop - first) / tally.heaviest) * height, 1.5);
      pen.rect(x, top + height - h, w - (w >= 5 ? 1 : 0), h, { fill: pen.p.blue });
    }
  }

  /**
   * How many tokens one run is ahead of the other: above the line the first one is.
   * @param {Tally[]} tallies
   */
  lead(tallies) {
    const { pen, axis, layout } = this;
    const { p } = pen;
    const height = layout.heights.lead;
    const top = layout.lead ?? 0;
    const middle = top + height / 2;
    const steps = leads(axis, tallies);
    const most = Math.max(...steps.map(({ ahead }) => Math.abs(ahead)), 1);
    const right = GUTTER + layout.room;
    pen.clip(GUTTER, top, layout.room + 1, height, () => {
      steps.forEach(({ from, to, ahead }) => {
        const x = Math.max(GUTTER + axis.x(from, layout.room), GUTTER);
        const w = Math.min(GUTTER + axis.x(to, layout.room), right) - x;
        const h = (Math.abs(ahead) / most) * (height / 2 - 1);
        if (w > 0 && h > 0)
          pen.rect(x, ahead > 0 ? middle - h : middle, w, h, {
            fill: ahead > 0 ? p.target : p.draft,
          });
      });
      pen.line(GUTTER, middle, right, middle, { stroke: p.grey });
    });
    const look = { ...SMALL, fill: p.muted, align: "right", max: GUTTER - 10 };
    pen.text("1st ahead", GUTTER - 8, top + height / 4, look);
    pen.text("2nd ahead", GUTTER - 8, top + (3 * height) / 4, look);
  }

  /**
   * The numbers of the axis; those that `taken` covers, in px, are left out.
   * @param {[number, number]} taken
   */
  ruler([left, right]) {
    const { pen, axis, layout } = this;
    const { p } = pen;
    const y = layout.ruler;
    const end = GUTTER + layout.room;
    pen.line(GUTTER, y + 0.5, end, y + 0.5, { stroke: p.grey });
    for (const value of axis.ticks(layout.room)) {
      const at = axis.byTime ? value : value + 0.5;
      const x = GUTTER + axis.x(at, layout.room);
      const words = axis.label(value, layout.room);
      const half = pen.measure(words, SMALL) / 2;
      if (x < GUTTER || x > end) continue;
      pen.line(x, y, x, y + 3, { stroke: p.grey });
      if (x + half + 4 < left || x - half - 4 > right)
        pen.text(words, Math.min(x, layout.width - half - 2), y + 11, {
          ...SMALL,
          fill: p.muted,
          align: "center",
        });
    }
    const unit = { ...SMALL, fill: p.muted, align: "right" };
    if (!axis.byTime) pen.text("round", GUTTER - 8, y + 11, unit);
  }
}

/**
 * A time in which a lane waits for the other.
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
export function drawBubble(pen, x, y, w, h) {
  if (w > 0) pen.rect(x, y, w, h, { fill: pen.p.amberSoft, hatch: pen.p.amber });
}
