// PoolPanel: the pool of a strategy that chooses who decodes next: its rows as bars of their
// length, the chosen group, and who waits. The bars stand on one foot in all rounds of a run,
// nearly always 0; as rows grow, the scale halves now and then.

import { counted, PAD, wrapWords } from "../draw/words.js";
import { capital } from "../page/run.js";
import { POOL, PoolPainter } from "./poolpaint.js";
import { decisionWords, waitWords } from "./poolwords.js";

/** @import { Pen, View } from "../types.d.ts" */
/** @import { Bars } from "./poolpaint.js" */

export class PoolPanel {
  static id = "pool";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this._scale = this._scaleOf(
      view.film.json.rounds.flatMap((round) => round.pool.map((each) => each.length)),
    );
  }

  /**
   * Lengths at the foot and at the top of the bars: from 0, unless all bars of the run would look
   * alike.
   * @param {number[]} lengths
   */
  _scaleOf(lengths) {
    const longest = lengths.reduce((most, each) => Math.max(most, each), 1);
    const shortest = lengths.reduce((least, each) => Math.min(least, each), longest);
    return { base: shortest > longest * 0.6 ? Math.floor(shortest * 0.9) : 0, longest };
  }

  get _pool() {
    return this.view.film.scene(this.view.step).pool;
  }
  get _chosen() {
    return this._pool.filter((each) => each.chosen);
  }
  empty() {
    return !this._pool.length;
  }
  key() {
    return `${this.view.film.round(this.view.step)} ${this.view.row}`;
  }

  title() {
    const { window } = this.view.film.json.meta.strategy_options;
    const size = this._pool.length;
    const room = window ? ` in a window of ${window}` : "";
    return `Pool · ${counted(size, "row")}${room}, ${this._chosen.length} chosen`;
  }

  _sentences() {
    const { film, step } = this.view;
    return `${capital(decisionWords(film, step))}. ${capital(waitWords(this._pool))}.`;
  }
  describe() {
    return `${this.title()}. ${this._sentences()}`;
  }

  table() {
    const rows = this._pool.slice(0, 400).map(({ request, length, waited, chosen }) => {
      const row = this.view.film.rowOf(this.view.step, request);
      return [request, length, chosen ? "chosen" : "waits", waited, row < 0 ? "–" : row];
    });
    const head = ["request", "length", "this round", "times left out before", "row of the batch"];
    return { caption: this._sentences(), head, rows };
  }

  /** @param {number} width */
  height(width) {
    const at = this._bars(width);
    return at.bottom + (at.wide ? 2 : 1) * POOL.signs + POOL.key + 8;
  }

  /**
   * Room for two lines of words at least, so that most rounds have one height.
   * @param {number} width
   */
  _top(width) {
    return Math.max(this._lines(width).length, POOL.lines) * 17 + POOL.top;
  }

  /** @param {number} width */
  _lines(width) {
    return wrapWords(this._sentences(), width - 2 * PAD, { size: 12 });
  }

  /**
   * @param {number} width
   * @returns {Bars}
   */
  _bars(width) {
    const top = this._top(width);
    const { base, longest } = this._scale;
    const pitch = Math.min((width - PAD - POOL.axis) / this._pool.length, POOL.most + POOL.gap);
    const waited = Math.max(...this._pool.map((each) => each.waited));
    const numbers = pitch >= (waited > 9 ? 18 : 10);
    const most = base
      ? longest
      : 2 ** Math.ceil(Math.log2(Math.max(...this._pool.map((each) => each.length))));
    /** @param {number} length */
    const y = (length) => top + POOL.bars * (1 - (length - base) / Math.max(most - base, 1));
    return { top, bottom: top + POOL.bars, base, pitch, waited, numbers, wide: pitch >= 20, y };
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    const at = this._bars(width);
    this._lines(width).forEach((line, n) =>
      pen.text(line, PAD, 8 + n * 17, { size: 12, fill: pen.p.ink }),
    );
    new PoolPainter(pen, this.view, at, width).paint();
  }

  /**
   * @param {number} x
   * @param {number} width
   */
  _at(x, width) {
    const n = Math.floor((x - POOL.axis) / this._bars(width).pitch);
    return this._pool[n] ?? null;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    const found = this._at(x, width);
    const at = this._bars(width);
    if (!found || y < at.top - 4 || y > at.bottom + 2 * POOL.signs + 4) return null;
    const { request, length, waited, chosen } = found;
    const row = this.view.film.rowOf(this.view.step, request);
    const wait = waited ? `, waited ${counted(waited, "round")} before this one` : "";
    const now = chosen ? `chosen, row ${row}` : "waits";
    return {
      row: row < 0 ? null : row,
      slot: null,
      index: null,
      hint: `request ${request}: ${counted(length, "token")}, ${now}${wait}`,
    };
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  click(x, y, width) {
    const row = this.hit(x, y, width)?.row;
    if (row !== null && row !== undefined) this.view.pick(row);
  }
}
