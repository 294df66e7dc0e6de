// EnteredPanel: the rows of the round: which requests entered, which go on, and how long each is
// against its budget.

import { counted, PAD, rangeWords, wrapWords } from "../draw/words.js";
import { joinedRanges } from "../film/ranges.js";
import { Lines } from "./lines.js";

/** @import { Pen, RowEntry, View } from "../types.d.ts" */

const NAME = { head: "row", x: 0 };
const LENGTH = { head: "prompt, new tokens", x: 0.25 };
const SINCE = { head: "in the batch", x: 1, right: true };
const BAR = 0.42; // share of the width that the longest request may fill
const FOOT = 17; // px of a line of words

export class EnteredPanel {
  static id = "rows";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    const { rounds, requests } = view.film.json;
    /** By request, the round in which it entered. @type {Map<number, number>} */
    this.since = new Map();
    rounds.forEach(({ rows }, round) =>
      rows.forEach(({ request }) => {
        if (!this.since.has(request)) this.since.set(request, round);
      }),
    );
    this.longest = Math.max(...requests.map(({ prompt, budget }) => prompt + budget), 1);
    this.most = Math.max(...rounds.map(({ rows }) => rows.length), 1);
  }

  empty() {
    return !this._rows.length;
  }
  get _rows() {
    return this.view.film.rows(this.view.step);
  }
  key() {
    const { film, step, row } = this.view;
    return `${film.round(step)} ${row}`;
  }

  /** @param {RowEntry} row */
  _enters({ request }) {
    return this.since.get(request) === this.view.film.round(this.view.step);
  }

  title() {
    const entered = this._rows.filter((row) => this._enters(row)).length;
    const words = entered ? `${counted(entered, "request")} entered` : "no request entered";
    return `Rows of round ${this.view.film.round(this.view.step)} · ${words}`;
  }

  /** @param {RowEntry} row */
  _sinceWords(row) {
    return this._enters(row) ? "enters now" : `since round ${this.since.get(row.request)}`;
  }

  _waiting() {
    const round = this.view.film.round(this.view.step);
    const waits = (this.view.film.json.waits ?? []).filter(
      ([, first, stop]) => first <= round && round < stop,
    );
    if (!waits.length) return "No request waits.";
    const numbers = waits.map(([request]) => request).sort((a, b) => a - b);
    const ranges = rangeWords(joinedRanges(numbers.map((number) => [number, number + 1])), 6);
    return `${counted(numbers.length, "request")} wait for a row: ${ranges}.`;
  }

  describe() {
    return `${this.title()}. ${this._waiting()}`;
  }

  table() {
    const rows = this._rows.map((row, number) => {
      const { prompt, budget } = this.view.film.json.requests[row.request];
      return [number, row.request, prompt, row.length - prompt, budget, this._sinceWords(row)];
    });
    const head = ["row", "request", "prompt", "new tokens", "budget", "in the batch"];
    return { caption: this._waiting(), head, rows };
  }

  /** @param {number} width */
  _foot(width) {
    return wrapWords(this._waiting(), width - 2 * PAD, { size: 12 });
  }

  /** @param {number} width */
  height(width) {
    return new Lines(width, this.most).height + FOOT * 2 + 4;
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    const { p } = pen;
    const at = new Lines(width, this._rows.length);
    at.frame(pen, [NAME, LENGTH, SINCE], this.view.row);
    this._rows.forEach((row, number) => {
      const enters = this._enters(row);
      const look = enters ? { weight: 700, fill: p.blue } : { fill: p.muted };
      at.cell(pen, number, NAME, `${number} · request ${row.request}`, { max: width * 0.23 });
      this._bar(pen, at, row, number);
      at.cell(pen, number, SINCE, this._sinceWords(row), look);
    });
    this._foot(width)
      .slice(0, 2)
      .forEach((line, n) =>
        pen.text(line, PAD, at.height + 10 + n * FOOT, { size: 12, fill: p.ink }),
      );
  }

  /**
   * @param {Pen} pen
   * @param {Lines} at
   * @param {RowEntry} row
   * @param {number} number
   */
  _bar(pen, at, row, number) {
    const { p } = pen;
    const { prompt, budget } = this.view.film.json.requests[row.request];
    const x = at.x(LENGTH.x);
    const px = (BAR * (at.width - 2 * PAD)) / this.longest;
    const h = Math.max(Math.min(at.line - 5, 11), 6);
    const y = at.middle(number) - h / 2;
    pen.rect(x, y, (prompt + budget) * px, h, { stroke: p.faint, radius: 2 });
    pen.rect(x, y, prompt * px, h, { fill: p.grey, radius: 2 });
    pen.rect(x + prompt * px, y, Math.max((row.length - prompt) * px, 0), h, { fill: p.target });
  }

  /**
   * @param {number} _x
   * @param {number} y
   * @param {number} width
   */
  hit(_x, y, width) {
    const row = new Lines(width, this._rows.length).rowAt(y);
    const entry = this._rows[row];
    if (!entry) return null;
    const { prompt, budget } = this.view.film.json.requests[entry.request];
    const made = `${counted(entry.length - prompt, "new token")} of ${budget}`;
    const hint = `row ${row}: request ${entry.request}, prompt of ${counted(prompt, "token")}, ${made}`;
    return { row, slot: null, index: null, hint };
  }
}
