// TimeStrip: all rounds of a run as columns of their phases' times, and which round it is now.

import { milliseconds } from "../draw/words.js";
import { sumOf } from "./timesums.js";

/** @import { Pen } from "../types.d.ts" */
/** @import { Sums } from "./timesums.js" */

/**
 * columns: ms of the phases; colours: of the phases; pitch: px of a column; now: the round.
 * @typedef {{ columns: number[][], colours: string[], pitch: number, sums: Sums, now: number }} Strip
 */

export class TimeStrip {
  /**
   * @param {Pen} pen
   * @param {Strip} of
   */
  constructor(pen, of) {
    this.pen = pen;
    this.of = of;
  }

  /** @param {{ x: number, y: number, w: number, h: number }} at */
  paint(at) {
    const { pen } = this;
    const { p } = pen;
    const { columns, pitch, now } = this.of;
    const { top, all } = this.of.sums;
    const cut = Math.max(...all) > top * 1.001;
    const y0 = at.y + 22;
    const bottom = y0 + at.h;
    const gap = pitch >= 5 ? 1 : 0;
    const words = cut
      ? `the run, cut at ${milliseconds(top)} a round`
      : `the run, ${milliseconds(top)} a round at most`;
    pen.text(words, at.x, at.y + 8, { size: 11, fill: p.muted, max: at.w });
    columns.forEach((column, n) => this._column(column, at.x + n * pitch, y0, at.h, gap));
    pen.line(at.x, bottom + 0.5, at.x + pitch * columns.length, bottom + 0.5, { stroke: p.grey });
    const each = (pitch * columns.length) / all.length;
    const x = at.x + now * each;
    const w = Math.max(each, 3);
    pen.rect(x - 1.5, y0 - 2, w + 3 - gap, at.h + 4, { stroke: p.blue, width: 2, radius: 2 });
    this._rounds(at.x, bottom + 11, each, at.w);
  }

  /**
   * @param {number[]} column
   * @param {number} x
   * @param {number} y0
   * @param {number} height
   * @param {number} gap
   */
  _column(column, x, y0, height, gap) {
    const { colours, pitch, sums } = this.of;
    const scale = height / Math.max(sums.top, 1e-9);
    let y = y0 + height;
    column.forEach((value, phase) => {
      const h = Math.min(value * scale, y - y0);
      if (h > 0) this.pen.rect(x, y - h, pitch - gap, h, { fill: colours[phase] });
      y -= h;
    });
    if (sumOf(column) > sums.top * 1.001)
      this.pen.rect(x, y0 + 4, pitch, 2, { fill: this.pen.p.panel });
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} each
   * @param {number} w
   */
  _rounds(x, y, each, w) {
    const { pen } = this;
    const { p } = pen;
    const { now, sums } = this.of;
    const last = sums.all.length - 1;
    const middle = x + (now + 0.5) * each;
    const words = `round ${now}`;
    const half = pen.measure(words, { size: 11, weight: 700 }) / 2;
    const end = x + (last + 1) * each;
    const at = Math.min(Math.max(middle, x + half), x + w - half);
    pen.text(words, at, y, { size: 11, weight: 700, fill: p.blue, align: "center" });
    if (at - half > x + 16) pen.text("0", x, y, { size: 11, fill: p.muted });
    if (last && at + half < end - 26)
      pen.text(`${last}`, end, y, { size: 11, fill: p.muted, align: "right" });
  }
}
