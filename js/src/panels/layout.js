// StageLayout: where rows, lanes and slots of the batch panel lie, in px. Knows no colours and
// draws nothing. A window shows `count` slots of each row, from firsts[row] on: the same ones for
// all rows if the round begins in there for all of them, else each row's own, so that all drafts
// stand in one column.

import { keepsNothing } from "../film/head.js";
import { hasTrees } from "../film/tree.js";
import { stripIn } from "./strip.js";

/** @import { RowEntry, RowLanes, View } from "../types.d.ts" */

export const ZOOMS = [1, 2, 4, 8, 13, 20, 28, 36, 46, 64, 90, 120]; // px of a slot
const TEXT_FROM = 26;
const SIGNS_FROM = 10;
const LARGE_FROM = 60; // px of a slot from which a cell shows its token, its sign, larger letters
// px of a slot from which the whole cache is shown rather than its end, at which it stops growing,
// and where only the end is shown
export const ALL_FROM = 28;
export const WIDEST = 110;
export const USUAL = 34;
const STACKED_BELOW = 44;
const DRAFT_BAR = 4; // px of a draft model's K/V
const ARROWS = 13; // px for the arrows of what moves within a row, in a run with trees
const DEEPER = 9; // px of a slot up to which a drift stands under its position, and what that takes
export const GUTTER = 118;
export const RIGHT = 14;
export const AXIS = 20;
export const READING = 40;
export const MAP_GAP = 10;

export class StageLayout {
  /**
   * @param {View} view
   * @param {number} width
   */
  constructor(view, width) {
    const { film, step } = view;
    this.view = view;
    this.film = film;
    this.step = step;
    this.width = width;
    this.stage = film.stage(step);
    this.rows = film.rows(step);
    /** @type {number[]} */
    this.firsts = [];
    this.shared = true;
    /** @type {RowLanes[]} */
    this.lanes = [];
    this.arrows = hasTrees(film) ? ARROWS : 0;
    // A head's K/V may be dashed, which takes more room; two runs stand at one height.
    const heads = [film, view.other].some((each) => each?.json.head);
    this.draftBar = heads ? 6 : DRAFT_BAR;
    this.bottom = 0;
    this.last = this._last();
    this.cell = this._cell();
    this.count = Math.max(Math.floor((width - GUTTER - RIGHT) / this.cell), 1);
    this._window();
    this.mapped = this.count < this.last || Math.min(...this.firsts, 0) < 0 || !this.shared;
    this.mapTop = 4;
    this.mapHeight = this.mapped ? Math.min(Math.max(this.rows.length * 3, 18), 64) : 0;
    this.top = this.mapTop + (this.mapped ? this.mapHeight + MAP_GAP : 0) + AXIS;
    this._rowTops();
    this.strip = stripIn(film.scene(step).capacity, width - GUTTER - RIGHT);
    this.readingTop = this.bottom + this.strip.height + 4;
    this.height = this.bottom + this.strip.height + READING;
  }

  get texts() {
    return this.cell >= TEXT_FROM;
  }
  get signs() {
    return this.cell >= SIGNS_FROM;
  }
  get stacked() {
    return (
      (this.film.drifts || this.view.other?.drifts) &&
      this.cell < STACKED_BELOW + (this.last > 99 ? 12 : 0)
    );
  }
  get large() {
    return this.cell >= LARGE_FROM;
  }

  // As wide as it fits; else so wide that the drafts of all rows stand in one window, unless that
  // leaves no room even for signs.
  _cell() {
    if (this.view.zoom != null) return ZOOMS[this.view.zoom];
    const room = this.width - GUTTER - RIGHT;
    const fits = room / this.last;
    if (fits >= ALL_FROM) return Math.min(fits, WIDEST);
    const together = room / (this.last - Math.min(...this.rows.map((row) => this.begin(row))) + 1);
    return together >= SIGNS_FROM ? Math.min(together, USUAL) : USUAL;
  }

  // Slot behind the last one that any row holds or awaits in this round.
  _last() {
    const ends = this.rows.map(
      (row) => 1 + Math.max(row.pending + Math.max(row.drafted, row.gained), row.pending_after),
    );
    return Math.max(this.stage.width, ...ends);
  }

  /**
   * Slot of each row's pending token when the round began, where it lies now.
   * @param {RowEntry} row
   */
  begin(row) {
    const moved =
      this.film.phase(this.step) === this.film.phases - 1 ? row.start_after - row.start : 0;
    return row.pending + moved;
  }

  _window() {
    const begins = this.rows.map((row) => this.begin(row));
    const span = Math.max(...this.rows.map((row) => Math.max(row.drafted, row.gained)), 0);
    const first = this.last <= this.count ? 0 : this.last - this.count;
    this.shared = begins.every((begin) => begin >= first);
    /** @param {number} begin */
    const own = (begin) => begin + span + 1 - this.count + 1;
    const slid = -Math.round(this.view.pan ?? 0);
    this.firsts = begins.map((begin) => (this.shared ? first : own(begin)) + slid);
  }

  _rowTops() {
    const n = this.rows.length;
    const open = this._heights();
    const compact = n <= 8 ? open : n <= 24 ? 25 : 13;
    let y = this.top;
    for (let row = 0; row < n; row++) {
      const wide = n <= 8 || row === this.view.row;
      const height = wide ? open : compact;
      this.lanes.push(this._lane(y, height, wide));
      y += height;
    }
    this.bottom = y;
  }

  _heights() {
    if (!this.signs) return 34;
    const more = this.arrows + this.draftBar - DRAFT_BAR;
    return (this.texts ? 68 + (this.stacked ? DEEPER : 0) : 50) + more;
  }

  /**
   * tops and heights of a row's lanes; positions: null where they are folded away
   * @param {number} y
   * @param {number} height
   * @param {boolean} open
   * @returns {RowLanes}
   */
  _lane(y, height, open) {
    if (!open) {
      const tokens = { y: y + 1, h: height > 14 ? 14 : 7 };
      const bar = height > 14 ? 3 : 2;
      const target = { y: tokens.y + tokens.h + 1, h: bar };
      const hidden = height <= 14 || keepsNothing(this.film);
      const draft = { y: target.y + bar + (height > 14 ? 1 : 0), h: hidden ? 0 : bar };
      const none = { positions: null, arrows: null, notes: null };
      return { y, height, open, tokens, target, draft, ...none };
    }
    const tokens = { y: y + 4, h: this.texts ? 23 : this.signs ? 18 : 10 };
    const positions = this.texts
      ? { y: tokens.y + tokens.h + 1, h: 11 + (this.stacked ? DEEPER : 0) }
      : null;
    const target = { y: (positions ?? tokens).y + (positions ?? tokens).h + 2, h: 6 };
    const draft = { y: target.y + 7, h: keepsNothing(this.film) ? 0 : this.draftBar };
    const below = draft.y + this.draftBar + 2;
    const arrows = this.signs && this.arrows ? { y: below, h: this.arrows } : null;
    return {
      y,
      height,
      open,
      tokens,
      positions,
      target,
      draft,
      arrows,
      notes: this.signs ? { y: below + this.arrows, h: 12 } : null,
    };
  }

  /**
   * @param {number} row
   * @param {number} slot
   */
  x(row, slot) {
    return GUTTER + (slot - this.firsts[row]) * this.cell;
  }
  /**
   * @param {number} row
   * @param {number} x
   */
  slotAt(row, x) {
    return Math.floor((x - GUTTER) / this.cell) + this.firsts[row];
  }
  /** @param {number} y */
  rowAt(y) {
    return this.lanes.findIndex((lane) => y >= lane.y && y < lane.y + lane.height);
  }
  get right() {
    return GUTTER + this.count * this.cell;
  }

  /**
   * px of a slot's left edge in the small map of the whole cache
   * @param {number} slot
   */
  mapX(slot) {
    return GUTTER + (slot * (this.width - GUTTER - RIGHT)) / this.last;
  }
  /** @param {number} x */
  mapSlot(x) {
    return ((x - GUTTER) * this.last) / (this.width - GUTTER - RIGHT);
  }
}
