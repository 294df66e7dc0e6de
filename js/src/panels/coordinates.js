// Coordinates: where on a line the slots of a row lie, by slot or by the position of the token in
// it, in px. In both, the row's last tokens stand at full width and the others are folded, at one
// scale for all rows: so a row that lies further to the right, or is longer, is seen to be.

import { GUTTER } from "./layout.js";

/** @import { LaneRun } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

export class Coordinates {
  /**
   * @param {StageLayout} at
   * @param {number[] | null} heads by row, where they are given
   */
  constructor(at, heads) {
    this.at = at;
    this.turn = at.view.turn ?? 0;
    /** By row, the first position at full width. @type {number[]} */
    this.heads = this.turn ? (heads ?? at.rows.map((_, row) => this._head(row))) : [];
  }

  /**
   * px of a place on a line whose full cells begin at `first`.
   * @param {number} place
   * @param {number} first
   */
  _px(place, first) {
    const { fold, cell, count } = this.at;
    const before = Math.min(place, first);
    const full = Math.min(Math.max(place - first, 0), count);
    const behind = Math.max(place - first - count, 0);
    return GUTTER + fold * (before + behind) + cell * full;
  }

  /**
   * As many of the row's places stand at full width before its pending token as by slots.
   * @param {number} row
   */
  _head(row) {
    const { at } = this;
    const begin = at.begin(at.rows[row]);
    return Math.max(this.positionOf(row, begin) - (begin - at.firsts[row]), 0);
  }

  /**
   * The position of what lies in a slot; where nothing does, that of what would follow on.
   * @param {number} row
   * @param {number} slot
   */
  positionOf(row, slot) {
    const { film, step, rows } = this.at;
    const begin = this.at.begin(rows[row]);
    let found = rows[row].length - 1 + slot - begin;
    for (const [first, stop, , index, position] of film.lane(step, "tokens", row)) {
      if (index < 0 || slot < first) continue;
      const at = position < 0 ? index : position;
      if (slot < stop) return at + slot - first;
      found = at + slot - first;
    }
    return found;
  }

  /**
   * @param {number} row
   * @param {number} slot
   * @param {number} [position]
   */
  x(row, slot, position) {
    const bySlot = this._px(slot, this.at.firsts[row]);
    if (!this.turn) return bySlot;
    const known = position !== undefined && position >= 0;
    const place = known ? position : this.positionOf(row, slot);
    return bySlot + (this._px(place, this.heads[row]) - bySlot) * this.turn;
  }

  /**
   * Whether a run is seen: by positions, what is no token of the row has no place.
   * @param {LaneRun} run
   */
  shows([, , kind, index]) {
    if (this.turn < 0.5) return true;
    return index >= 0 && this.at.film.json.kinds[kind] !== "stale";
  }

  /**
   * The position of a run's first token, or its index where no position is known.
   * @param {LaneRun} run
   */
  firstPosition([, , , index, position]) {
    return position < 0 ? index : position;
  }

  /**
   * The slots from `first` to before `stop` of a run of slots that stand at full width in either
   * coordinate.
   * @param {number} row
   * @param {number} first
   * @param {number} stop
   * @param {number} position of the first one, or -1
   * @returns {[number, number]}
   */
  full(row, first, stop, position) {
    const { at } = this;
    const from = at.firsts[row];
    let [low, high] = [from, from + at.count];
    if (this.turn && position >= 0) {
      const shift = first - position;
      const ends = [this.heads[row] + shift, this.heads[row] + at.count + shift];
      if (this.turn === 1) [low, high] = ends;
      else [low, high] = [Math.min(low, ends[0]), Math.max(high, ends[1])];
    }
    return [Math.max(first, low), Math.min(stop, high)];
  }

  /**
   * @param {number} row
   * @param {number} x
   */
  slotAt(row, x) {
    const { at } = this;
    if (this.turn) return this._slotUnder(row, x);
    const { fold, cell, count } = at;
    const first = at.firsts[row];
    const edge = GUTTER + fold * first;
    if (x < edge) return Math.floor((x - GUTTER) / fold);
    if (x < edge + cell * count) return first + Math.floor((x - edge) / cell);
    return first + count + (fold ? Math.floor((x - edge - cell * count) / fold) : 0);
  }

  /**
   * @param {number} row
   * @param {number} x
   */
  _slotUnder(row, x) {
    const { film, step } = this.at;
    let found = -1;
    for (const [first, stop, kind, index] of film.lane(step, "tokens", row)) {
      if (index < 0 || film.json.kinds[kind] === "stale") continue;
      for (let slot = first; slot < stop; slot++)
        if (x >= this.x(row, slot) && x < this.x(row, slot + 1)) found = slot;
    }
    return found;
  }
}
