// PoolPainter: the rows of a pool as bars of their length, the chosen ones, and who waits.

import { PAD } from "../draw/words.js";
import { commonLength } from "./poolwords.js";

/** @import { Pen, PoolEntry, View } from "../types.d.ts" */

export const POOL = {
  top: 26,
  bars: 92,
  signs: 17,
  key: 20,
  gap: 4,
  least: 3,
  most: 56,
  axis: 58,
  lines: 2,
}; // px

/**
 * Where the bars stand; pitch: px of one with its gap; waited: the longest wait; numbers: whether
 * there is room for how long they waited; wide: and for more; y: the top of a bar of a length.
 * @typedef {{ top: number, bottom: number, base: number, pitch: number, waited: number,
 *   numbers: boolean, wide: boolean, y: (length: number) => number }} Bars
 */

export class PoolPainter {
  /**
   * @param {Pen} pen
   * @param {View} view
   * @param {Bars} at
   * @param {number} width
   */
  constructor(pen, view, at, width) {
    this.pen = pen;
    this.view = view;
    this.at = at;
    this.width = width;
    this.pool = view.film.scene(view.step).pool;
    this.common = commonLength(this.pool);
  }

  paint() {
    this._axis();
    this._guide();
    this._explain();
    this.pool.forEach((each, n) => this._bar(each, POOL.axis + n * this.at.pitch));
  }

  _axis() {
    const { pen, at, width } = this;
    const { p } = pen;
    const look = { size: 11, fill: p.muted, align: "right" };
    const right = POOL.axis - 8;
    pen.line(POOL.axis - 4, at.bottom + 0.5, width - PAD, at.bottom + 0.5, { stroke: p.grey });
    pen.text(`${at.base}`, right, at.bottom - 1, look);
    pen.text("length", right, at.top - 11, look);
    pen.text("waited", right, at.bottom + 4 + POOL.signs / 2, look);
    if (at.wide) pen.text("request", right, at.bottom + 4 + POOL.signs * 1.5, look);
  }

  /**
   * @param {PoolEntry} entry
   * @param {number} x
   */
  _bar({ request, length, waited, chosen }, x) {
    const { pen, at } = this;
    const { p } = pen;
    const w = Math.max(at.pitch - POOL.gap, POOL.least);
    const y = at.y(length);
    const middle = x + w / 2;
    const row = this.view.film.rowOf(this.view.step, request);
    const inside = at.bottom - y > 20 ? at.bottom - 10 : y - 8;
    pen.rect(
      x,
      y,
      w,
      at.bottom - y,
      chosen
        ? { fill: p.blueSoft, stroke: p.blue, width: 1.5 }
        : { fill: p.greySoft, stroke: p.grey },
    );
    if (row >= 0 && row === this.view.row)
      pen.rect(x - 2, y - 2, w + 4, at.bottom - y + 4, { stroke: p.ink, width: 1.5, radius: 2 });
    if (at.wide)
      pen.text(`${length}`, middle, inside, {
        size: 11,
        weight: chosen ? 700 : 400,
        align: "center",
        max: w + 3,
      });
    this._sign(waited, chosen, x, w);
    if (at.wide)
      pen.text(`${request}`, middle, at.bottom + 4 + POOL.signs * 1.5, {
        size: 11,
        fill: p.muted,
        align: "center",
      });
  }

  /**
   * Chosen, or for how many rounds it has waited: a number, or where there is no room for one a
   * bar.
   * @param {number} waited
   * @param {boolean} chosen
   * @param {number} x
   * @param {number} w
   */
  _sign(waited, chosen, x, w) {
    const { pen, at } = this;
    const { p } = pen;
    const middle = x + w / 2;
    const y = at.bottom + 4 + POOL.signs / 2;
    if (chosen)
      return pen.text("✓", middle, y, {
        size: at.pitch >= 9 ? 12 : 9,
        weight: 700,
        fill: p.blue,
        align: "center",
      });
    if (at.numbers)
      return pen.text(waited ? `${waited}` : "·", middle, y, {
        size: 11,
        fill: waited ? p.ink : p.muted,
        align: "center",
      });
    if (waited)
      pen.rect(x, at.bottom + 4, w, Math.max((waited / at.waited) * (POOL.signs - 3), 1.5), {
        fill: p.grey,
      });
  }

  // A line at the length that rows share.
  _guide() {
    const { pen, at, width, common } = this;
    const { p } = pen;
    if (!common) return;
    const { length: shown, grouped } = common;
    const y = at.y(shown);
    pen.line(POOL.axis - 4, y, width - PAD, y, { stroke: grouped ? p.blue : p.grey, dash: [4, 3] });
    const look = { size: 11, weight: 700, fill: grouped ? p.blue : p.muted, align: "right" };
    if (y < at.bottom - 14) pen.text(`${shown}`, POOL.axis - 8, y, look);
  }

  // What the frame and the line are, and where the bars begin if not at 0.
  _explain() {
    const { pen, at, width, common } = this;
    const { p } = pen;
    const look = { size: 11, fill: p.muted };
    const y = at.bottom + (at.wide ? 2 : 1) * POOL.signs + 4 + POOL.key / 2;
    const words = `row ${this.view.row}`;
    let x = PAD + 20 + pen.measure(words, look) + 16;
    pen.rect(PAD, y - 6, 14, 12, { stroke: p.ink, width: 1.5, radius: 2 });
    pen.text(words, PAD + 20, y, look);
    if (common)
      pen.line(x, y, x + 20, y, { stroke: common.grouped ? p.blue : p.grey, dash: [4, 3] });
    if (common) x += 26;
    const line = common ? [common.grouped ? "length of the chosen" : "most common length"] : [];
    const foot = at.base ? [`bars begin at ${at.base}`] : [];
    pen.text([...line, ...foot].join(" · "), x, y, { ...look, max: width - PAD - x });
  }
}
