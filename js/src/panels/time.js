// TimePanel: what the phases of this round took, what they took so far, and the K/V that was
// copied. The times are those of the recorded run; the panel adds them up and claims no more.

import { Kept } from "../draw/text.js";
import { bytesOf, milliseconds, PAD, wrapWords } from "../draw/words.js";
import { TimeStrip } from "./timestrip.js";
import { addUp, meansOf, percent, sumOf } from "./timesums.js";

/** @import { Film, Palette, Pen, View } from "../types.d.ts" */
/** @import { Sums } from "./timesums.js" */

const TIME = {
  line: 23,
  bar: 13,
  name: 104,
  number: 60,
  share: 50,
  strip: 74,
  wide: 520,
  gap: 28,
  part: 0.57,
  most: 40,
}; // px

export class TimePanel {
  static id = "time";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {Kept<number[][]>} */
    this._means = new Kept(5);
    /** @type {Film | undefined} */
    this._film = undefined;
    /** @type {Sums | undefined} */
    this._kept = undefined;
  }

  key() {
    return `${this.view.step}`;
  }
  empty() {
    return !this.view.film.steps;
  }
  get _round() {
    return this.view.film.round(this.view.step);
  }
  get _ms() {
    return this.view.film.scene(this.view.step).ms;
  }

  // Counted once for a film.
  get _sums() {
    const { film } = this.view;
    if (!this._kept || this._film !== film) {
      this._film = film;
      this._kept = addUp(film.json);
    }
    return this._kept;
  }

  // Of a log without times, there is one sentence.
  get _untold() {
    return this.view.film.json.gaps?.time ?? null;
  }

  title() {
    if (this._untold) return `Time · round ${this._round}`;
    return `Time · round ${this._round}: ${milliseconds(sumOf(this._ms))}`;
  }

  _shares() {
    const so = this._sums.ms[this._round];
    const all = sumOf(so);
    return so.map((value) => percent(value / Math.max(all, 1e-9)));
  }

  _moved() {
    const { bytes, total, ms } = this._sums;
    const now = bytes[this._round];
    const so = total[this._round];
    const all = sumOf(ms[this._round]);
    const rounds = this._round ? `Rounds 0 to ${this._round}` : "This round";
    const words = this._untold ?? `${rounds}: ${milliseconds(all)}.`;
    const { gaps } = this.view.film.json;
    if (gaps?.bytes) return `${words} ${gaps.bytes}`;
    if (!total[total.length - 1]) return `${words} No K/V is copied in this run.`;
    const here = now ? bytesOf(now) : "none";
    const before = so ? bytesOf(so) : "none";
    return `${words} K/V copied: ${here} in this round, ${before} so far.`;
  }

  describe() {
    const { film, step } = this.view;
    if (this._untold) return `${this.title()}. ${this._moved()}`;
    const parts = this._ms.map(
      (value, phase) => `${film.json.phases[phase]} ${milliseconds(value)}`,
    );
    return `${this.title()}. ${parts.join(", ")}. At ${film.phaseName(step)}. ${this._moved()}`;
  }

  table() {
    const { film } = this.view;
    if (this._untold) return { caption: this._moved(), head: [], rows: [] };
    const shares = this._shares();
    const so = this._sums.ms[this._round];
    const rows = film.json.phases.map((name, phase) => [
      name,
      milliseconds(this._ms[phase]),
      milliseconds(so[phase]),
      shares[phase],
    ]);
    rows.push(["all", milliseconds(sumOf(this._ms)), milliseconds(sumOf(so)), percent(1)]);
    const head = ["phase", "this round", `rounds 0 to ${this._round}`, "share of these"];
    return { caption: this._moved(), head, rows };
  }

  /**
   * left: where the phases stand; right: where the run does, beside or under them.
   * @param {number} width
   */
  _places(width) {
    const wide = width >= TIME.wide;
    const room = width - 2 * PAD;
    const w = wide ? (room - TIME.gap) * TIME.part : room;
    const lines = 5 * TIME.line;
    const right = wide
      ? { x: PAD + w + TIME.gap, y: 0, w: room - w - TIME.gap }
      : { x: PAD, y: 18 + lines + 14, w };
    const words = wrapWords(this._moved(), room, { size: 12 });
    const foot = this._untold ? 4 : wide ? 18 + lines + 16 : right.y + 22 + TIME.strip + 30;
    return {
      left: { x: PAD, y: 18, w },
      right: { ...right, h: wide ? lines - 22 : TIME.strip },
      words,
      foot,
    };
  }

  /** @param {number} width */
  height(width) {
    const { words, foot } = this._places(width);
    return foot + words.length * 17 + 2;
  }

  /** @param {Palette} at */
  colours({ grey, draft, target, green, orange }) {
    return [grey, draft, target, green, orange];
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    const { left, right, words, foot } = this._places(width);
    const { p } = pen;
    words.forEach((line, n) => pen.text(line, PAD, foot + 6 + n * 17, { size: 12, fill: p.ink }));
    if (this._untold) return;
    const head = { size: 11, fill: p.muted, align: "right" };
    pen.text("this round", left.x + left.w - TIME.share, 8, head);
    pen.text("so far", left.x + left.w, 8, head);
    this.view.film.json.phases.forEach((_, phase) => this._phase(pen, left, phase));
    new TimeStrip(pen, {
      columns: this._columns(right),
      colours: this.colours(p),
      pitch: this._pitch(right),
      sums: this._sums,
      now: this._round,
    }).paint(right);
  }

  /**
   * @param {Pen} pen
   * @param {{ x: number, y: number, w: number }} at
   * @param {number} phase
   */
  _phase(pen, { x, y, w }, phase) {
    const { film, step } = this.view;
    const { p } = pen;
    const here = film.phase(step) === phase;
    const middle = y + (phase + 0.5) * TIME.line;
    const room = w - TIME.name - TIME.number - TIME.share;
    const value = this._ms[phase];
    const look = { size: 12, weight: here ? 700 : 400, fill: here ? p.blue : p.ink };
    if (here) pen.text("▸", x, middle, { size: 12, fill: p.blue });
    pen.text(film.json.phases[phase], x + 12, middle, look);
    pen.rect(x + TIME.name, middle - TIME.bar / 2, room, TIME.bar, { fill: p.greySoft, radius: 3 });
    const long = Math.max((room * value) / Math.max(...this._ms, 1e-9), 1.5);
    pen.rect(x + TIME.name, middle - TIME.bar / 2, long, TIME.bar, {
      fill: this.colours(p)[phase],
      radius: Math.min(3, long / 2),
    });
    if (here)
      pen.rect(x + TIME.name - 2, middle - TIME.bar / 2 - 2, room + 4, TIME.bar + 4, {
        stroke: p.blue,
        width: 1.5,
        radius: 4,
      });
    pen.text(milliseconds(value), x + w - TIME.share, middle, {
      ...look,
      size: 11,
      align: "right",
    });
    pen.text(this._shares()[phase], x + w, middle, { size: 11, fill: p.muted, align: "right" });
  }

  /**
   * The rounds of the run, or where several share a pixel their mean; a column that is taller than
   * the strip ends in a gap.
   * @param {{ w: number }} at
   */
  _columns({ w }) {
    const { rounds } = this.view.film.json;
    const count = Math.max(1, Math.min(rounds.length, Math.floor(w / 2)));
    return this._means.get(count, () => meansOf(rounds, count));
  }

  /**
   * px of a column
   * @param {{ w: number }} at
   */
  _pitch(at) {
    return Math.min(at.w / this._columns(at).length, TIME.most);
  }

  /**
   * {phase} or {round} under a point, or null
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  _under(x, y, width) {
    if (this._untold) return null;
    const { left, right } = this._places(width);
    const phase = Math.floor((y - left.y) / TIME.line);
    const { all } = this._sums;
    if (x >= left.x && x < left.x + left.w && phase >= 0 && phase < 5) return { phase };
    const each = (this._pitch(right) * this._columns(right).length) / all.length;
    const round = Math.floor((x - right.x) / each);
    const inside = y >= right.y + 16 && y < right.y + 22 + right.h + 20;
    return inside && round >= 0 && round < all.length ? { round } : null;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    const found = this._under(x, y, width);
    const { phases, rounds } = this.view.film.json;
    const { all, bytes } = this._sums;
    const nowhere = { row: null, slot: null, index: null };
    if (!found) return null;
    const { phase } = found;
    if (phase !== undefined)
      return {
        ...nowhere,
        hint: `${phases[phase]}: ${milliseconds(this._ms[phase])} in this round`,
      };
    const moved = bytes[found.round] ? `, ${bytesOf(bytes[found.round])} of K/V copied` : "";
    const parts = rounds[found.round].ms
      .map((value, phase) => `${phases[phase]} ${milliseconds(value)}`)
      .join(", ");
    return {
      ...nowhere,
      hint: `round ${found.round}: ${milliseconds(all[found.round])}${moved} — ${parts}`,
    };
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  click(x, y, width) {
    const found = this._under(x, y, width);
    const { film, step, go } = this.view;
    if (found)
      go(
        found.phase === undefined
          ? found.round * film.phases + film.phase(step)
          : step - film.phase(step) + found.phase,
      );
  }
}
