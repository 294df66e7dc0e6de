// MovesPanel: what the round did to the place of each row: its length, the slot in which its K/V
// ends, and what was copied to get there.

import { bytesOf, counted, PAD, wrapWords } from "../draw/words.js";
import { Lines } from "./lines.js";

/** @import { Pen, RowEntry, View } from "../types.d.ts" */

const NAME = { head: "row", x: 0 };
const LENGTH = { head: "tokens", x: 0.15 };
const END = { head: "K/V ends at slot", x: 0.62, right: true };
const MOVED = { head: "moved", x: 1, right: true };
const FOOT = 17; // px of a line of words

export class MovesPanel {
  static id = "moves";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.most = Math.max(...view.film.json.rounds.map(({ rows }) => rows.length), 1);
  }

  empty() {
    return !this._rows.length;
  }
  get _rows() {
    return this.view.film.rows(this.view.step);
  }
  // Until the drafts are judged, the panel shows where the rows are.
  get _done() {
    return this.view.film.phase(this.view.step) === this.view.film.phases - 1;
  }
  key() {
    const { film, step, row } = this.view;
    return `${film.round(step)} ${film.phase(step)} ${row}`;
  }

  title() {
    const round = this.view.film.round(this.view.step);
    if (!this._done) return `Where the rows end · round ${round}, before it is synchronised`;
    const moved = this._rows.filter((_, row) => this._move(row)).length;
    return `Where the rows end · round ${round}, ${counted(moved, "row")} moved`;
  }

  /**
   * How far to the right the target's K/V of a row moved, from which row, and how many slots.
   * @param {number} row
   */
  _move(row) {
    if (!this._done) return null;
    /** @type {{ by: number, from: number, slots: number } | null} */
    let found = null;
    let slots = 0;
    for (const [model, , from, fromSlot, to, toSlot, length] of this.view.film.stage(this.view.step)
      .moves) {
      if (model !== 0 || to !== row) continue;
      const by = from === to ? toSlot - fromSlot : 0;
      found = { by, from, slots: slots + length };
      slots += length;
    }
    return found;
  }

  /** @param {number} row */
  _moveWords(row) {
    const move = this._move(row);
    if (!move) return this._done ? "stays" : "";
    const slots = counted(move.slots, "slot");
    if (move.from !== row) return `from row ${move.from}, ${slots}`;
    return `${Math.abs(move.by)} ${move.by > 0 ? "right" : "left"}, ${slots}`;
  }

  /**
   * The last slot whose K/V counts: that of the last token does not exist yet.
   * @param {RowEntry} row
   * @param {number} number
   */
  _end(row, number) {
    const { film, step } = this.view;
    if (this._done) return row.finished ? null : row.pending_after - 1;
    const end = film.stage(step).pending[number];
    return (end ?? row.pending) - 1;
  }

  /** @param {RowEntry} row */
  _lengthWords(row) {
    if (!this.view.film.judged(this.view.step)) return `${row.length}`;
    return `${row.length} → ${row.length + row.gained}${row.finished ? ", ended" : ""}`;
  }

  _sum() {
    const { film, step } = this.view;
    const { bytes } = film.scene(step);
    if (!this._done) return "Nothing has moved yet in this round.";
    if (film.json.gaps?.bytes) return film.json.gaps.bytes;
    if (!bytes) return "No K/V was copied in this round.";
    const within = this._rows.some((_, row) => this._move(row)) ? "" : ", within rows";
    return `${bytesOf(bytes)} of K/V were copied in this round${within}.`;
  }

  describe() {
    return `${this.title()}. ${this._sum()}`;
  }

  table() {
    const rows = this._rows.map((row, number) => [
      number,
      row.request,
      this._lengthWords(row),
      this._end(row, number) ?? "ended",
      this._moveWords(number),
    ]);
    const head = ["row", "request", "tokens", "K/V ends at slot", "moved"];
    return { caption: this._sum(), head, rows };
  }

  /** @param {number} width */
  height(width) {
    return new Lines(width, this.most).height + FOOT + 4;
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    const { p } = pen;
    const at = new Lines(width, this._rows.length);
    at.frame(pen, [NAME, LENGTH, END, MOVED], this.view.row);
    this._rows.forEach((row, number) => {
      const moved = this._move(number);
      at.cell(pen, number, NAME, `${number}`, { weight: 650 });
      at.cell(pen, number, LENGTH, this._lengthWords(row), { max: width * 0.3 });
      at.cell(pen, number, END, `${this._end(row, number) ?? "–"}`, { weight: 650 });
      const look = moved ? { fill: p.blue, weight: 650 } : { fill: p.muted };
      at.cell(pen, number, MOVED, this._moveWords(number), { ...look, max: width * 0.36 });
    });
    const [line] = wrapWords(this._sum(), width - 2 * PAD, { size: 12 });
    pen.text(line, PAD, at.height + 9, { size: 12, fill: p.ink });
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
    const hint = `row ${row}: ${this.view.film.stage(this.view.step).words_of?.[row] ?? ""}`;
    return { row, slot: null, index: null, hint };
  }
}
