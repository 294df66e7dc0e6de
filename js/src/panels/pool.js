// PoolPanel: the pool of a strategy that chooses who decodes next: its rows as bars of their
// length, the chosen group, and who waits. The bars stand on one foot in all rounds of a run,
// nearly always 0; as rows grow, the scale halves now and then.

import { counted, PAD, wrapWords } from "../draw/words.js";
import { capital } from "../page/run.js";

/** @import { Pen, PoolEntry, View } from "../types.d.ts" */

const POOL = {
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

  // {length, count} of the length that most rows share.
  _largest() {
    const counts = new Map();
    for (const { length } of this._pool) counts.set(length, (counts.get(length) ?? 0) + 1);
    return [...counts]
      .map(([length, count]) => ({ length, count }))
      .reduce((best, each) => (each.count > best.count ? each : best));
  }

  // How the round was chosen, in words.
  decision() {
    const { film, step } = this.view;
    const { batch_size: size, strategy_options: options } = film.json.meta;
    const { decision } = film.scene(step);
    const chosen = this._chosen;
    const rows = counted(chosen.length, "sequence");
    if (decision === "grouped") return `grouped: ${rows} of length ${chosen[0]?.length}`;
    if (decision === "overdue") {
      const same = new Set(chosen.map((each) => each.length)).size === 1;
      const passed = `a sequence waited as often as max_wait = ${options.max_wait} allows`;
      return `overdue: ${passed}, so those that waited longest run${same ? "" : ", realigned"}`;
    }
    const none = `no ${Math.min(size, this._pool.length)} sequences share a length`;
    if (decision === "partial") {
      const run = chosen.length === 1 ? "runs" : "run";
      return `fallback partial: ${none}, so ${rows} of length ${chosen[0]?.length} ${run} alone`;
    }
    if (decision === "realigned") {
      const { count, length } = this._largest();
      const closest = count > 1 ? ` (at most ${count} do, ${length} each)` : "";
      return `fallback realign: ${none}${closest}, so those that entered first are realigned`;
    }
    return decision;
  }

  // The same words as in the sentence of the phase (schedulewords.py).
  _waits() {
    const waiting = this._pool.filter((each) => !each.chosen);
    if (!waiting.length) return "none waits";
    const { request, waited } = waiting.reduce((longest, each) =>
      each.waited > longest.waited ? each : longest,
    );
    const words = counted(waiting.length, "sequence waits", "sequences wait");
    if (!waited) return `${words} for the first time`;
    const which = `request ${request}${waiting.length > 1 ? " longest" : ""}`;
    return `${words}, ${which}: passed over ${counted(waited, "time")} before`;
  }

  _sentences() {
    return `${capital(this.decision())}. ${capital(this._waits())}.`;
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
   * Where the bars stand; pitch: px of one with its gap; numbers: whether there is room for how
   * long they waited; wide: and for more.
   * @param {number} width
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
    const { p } = pen;
    this._lines(width).forEach((line, n) =>
      pen.text(line, PAD, 8 + n * 17, { size: 12, fill: p.ink }),
    );
    this._axis(pen, at, width);
    this._guide(pen, at, width);
    this._explain(pen, at, width);
    this._pool.forEach((each, n) => this._bar(pen, at, each, POOL.axis + n * at.pitch));
  }

  /**
   * @param {Pen} pen
   * @param {ReturnType<PoolPanel["_bars"]>} at
   * @param {number} width
   */
  _axis(pen, at, width) {
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
   * @param {Pen} pen
   * @param {ReturnType<PoolPanel["_bars"]>} at
   * @param {PoolEntry} entry
   * @param {number} x
   */
  _bar(pen, at, { request, length, waited, chosen }, x) {
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
    this._sign(pen, at, waited, chosen, x, w);
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
   * @param {Pen} pen
   * @param {ReturnType<PoolPanel["_bars"]>} at
   * @param {number} waited
   * @param {boolean} chosen
   * @param {number} x
   * @param {number} w
   */
  _sign(pen, at, waited, chosen, x, w) {
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

  // {length, grouped}: what the chosen rows share, or else what most rows do; null where no two
  // share one.
  _common() {
    const lengths = new Set(this._chosen.map((each) => each.length));
    const { length, count } = this._largest();
    if (lengths.size === 1) return { length: [...lengths][0], grouped: true };
    return count > 1 ? { length, grouped: false } : null;
  }

  /**
   * A line at that length.
   * @param {Pen} pen
   * @param {ReturnType<PoolPanel["_bars"]>} at
   * @param {number} width
   */
  _guide(pen, at, width) {
    const { p } = pen;
    const common = this._common();
    if (!common) return;
    const { length: shown, grouped } = common;
    const y = at.y(shown);
    pen.line(POOL.axis - 4, y, width - PAD, y, { stroke: grouped ? p.blue : p.grey, dash: [4, 3] });
    const look = { size: 11, weight: 700, fill: grouped ? p.blue : p.muted, align: "right" };
    if (y < at.bottom - 14) pen.text(`${shown}`, POOL.axis - 8, y, look);
  }

  /**
   * What the frame and the line are, and where the bars begin if not at 0.
   * @param {Pen} pen
   * @param {ReturnType<PoolPanel["_bars"]>} at
   * @param {number} width
   */
  _explain(pen, at, width) {
    const { p } = pen;
    const look = { size: 11, fill: p.muted };
    const y = at.bottom + (at.wide ? 2 : 1) * POOL.signs + 4 + POOL.key / 2;
    const common = this._common();
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
