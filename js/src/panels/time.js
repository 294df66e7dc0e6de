// TimePanel: what the phases of this round took, what they took so far, and the K/V that was
// copied. The times are those of the recorded run; the panel adds them up and claims no more.

import { bytesOf, milliseconds, PAD, percent, wrapWords } from "../draw/words.js";
import { sumOf } from "../film/tally.js";

/** @import { Palette, Pen, View } from "../types.d.ts" */

const TIME = { top: 18, line: 23, bar: 13, name: 104, number: 60, share: 50 }; // px

export class TimePanel {
  static id = "time";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
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

  // Of this round, and of all rounds up to it.
  get _now() {
    return this.view.film.tally.totals(this._round, this._round + 1);
  }
  get _soFar() {
    return this.view.film.tally.totals(0, this._round + 1);
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
    const { ms, all } = this._soFar;
    return ms.map((value) => percent(value / Math.max(all, 1e-9)));
  }

  _moved() {
    const now = this._now.bytes;
    const so = this._soFar;
    const rounds = this._round ? `Rounds 0 to ${this._round}` : "This round";
    const words = this._untold ?? `${rounds}: ${milliseconds(so.all)}.`;
    const { gaps } = this.view.film.json;
    if (gaps?.bytes) return `${words} ${gaps.bytes}`;
    if (!this.view.film.tally.copies) return `${words} No K/V is copied in this run.`;
    const here = now ? bytesOf(now) : "none";
    const before = so.bytes ? bytesOf(so.bytes) : "none";
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
    const so = this._soFar.ms;
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

  /** @param {number} width */
  _places(width) {
    const w = width - 2 * PAD;
    const words = wrapWords(this._moved(), w, { size: 12 });
    const foot = this._untold ? 4 : TIME.top + 5 * TIME.line + 12;
    return { x: PAD, y: TIME.top, w, words, foot };
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
    const { words, foot, ...at } = this._places(width);
    const { p } = pen;
    words.forEach((line, n) => pen.text(line, PAD, foot + 6 + n * 17, { size: 12, fill: p.ink }));
    if (this._untold) return;
    const head = { size: 11, fill: p.muted, align: "right" };
    pen.text("this round", at.x + at.w - TIME.share, 8, head);
    pen.text("so far", at.x + at.w, 8, head);
    this.view.film.json.phases.forEach((_, phase) => this._phase(pen, at, phase));
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
   * The phase under a point, -1 for none.
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  _under(x, y, width) {
    const phase = Math.floor((y - TIME.top) / TIME.line);
    const inside = x >= PAD && x < width - PAD && phase >= 0 && phase < 5;
    return inside && !this._untold ? phase : -1;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    const phase = this._under(x, y, width);
    if (phase < 0) return null;
    const name = this.view.film.json.phases[phase];
    const hint = `${name}: ${milliseconds(this._ms[phase])} in this round`;
    return { row: null, slot: null, index: null, hint };
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  click(x, y, width) {
    const phase = this._under(x, y, width);
    const { film, step, go } = this.view;
    if (phase >= 0) go(step - film.phase(step) + phase);
  }
}
