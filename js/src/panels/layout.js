// StageLayout: where rows, lanes and slots of the batch panel lie, in px. Knows no colours and
// draws nothing. Each row shows `count` slots at full width, from firsts[row] on, so that its round
// stands in them; the slots before and behind are folded: `fold` px each, one scale for all rows.
// Rows stand by slots (view.turn 0), by the positions of their tokens (1), or are on the way.

import { keepsNothing } from "../film/head.js";
import { stateLanes } from "../film/states.js";
import { hasTrees } from "../film/tree.js";
import { Coordinates } from "./coordinates.js";
import { stripIn } from "./strip.js";

/** @import { RowEntry, RowLanes, View } from "../types.d.ts" */
/** @import { RowPair } from "../film/pairing.js" */
/** @typedef {{ request: number, y: number, height: number }} Gap */

export const ZOOMS = [1, 2, 4, 8, 13, 20, 28, 36, 46, 64, 90, 120]; // px of a slot
const TEXT_FROM = 26;
const SIGNS_FROM = 10;
const LARGE_FROM = 60; // px of a slot from which a cell shows its token, its sign, larger letters
// px of a slot from which nothing is folded, at which it stops growing, and where some are folded
const ALL_FROM = 46;
export const WIDEST = 110;
export const USUAL = 54;
const FOLDED = 44; // px that folded slots take at least
const FOLDED_SHARE = 0.2; // of the room, where tokens need not give theirs
const STACKED_BELOW = 44;
const DRAFT_BAR = 4; // px of a draft model's K/V
const ARROWS = 13; // px for the arrows of what moves within a row, in a run with trees
const DEEPER = 9; // px of a slot up to which a drift stands under its position, and what that takes
export const STATE = 12; // px of the states of one model
const HANGS = 2; // px between what hangs below a row and its positions
const OPEN = 56; // px of an open row
export const LOWEST = 46; // px of it where room is scarce
export const GUTTER = 100;
export const RIGHT = 12;
export const AXIS = 18;
export const READING = 28;

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
    /** @type {RowLanes[]} */
    this.lanes = [];
    this.pairs = this._pair();
    /** Of requests of another run that are not in the batch. @type {Gap[]} */
    this.gaps = [];
    this.arrows = hasTrees(film) ? ARROWS : 0;
    // A head's K/V may be dashed, which takes more room; two runs stand at one height.
    const both = [film, view.other];
    const heads = both.some((each) => each?.json.head);
    this.draftBar = heads ? 6 : DRAFT_BAR;
    /** px of a row's states */
    this.states = Math.max(...both.map((each) => (each ? stateLanes(each) * STATE : 0)));
    this.bottom = 0;
    this.last = this._last();
    this.span = this._span();
    this.cell = this._cell();
    this.count = this._count();
    const { room } = this;
    const folded = this.last - this.count;
    this.fold = folded > 0 ? Math.max((room - this.count * this.cell) / folded, 0) : 0;
    /** By row, the first slot at full width. @type {number[]} */
    this.firsts = this._firsts();
    this.shared = !view.turn && this.firsts.every((first) => first === this.firsts[0]);
    this.places = new Coordinates(this, this.heads());
    this.top = AXIS;
    this._rowTops();
    this.strip = stripIn(film.capacity, room);
    this.readingTop = this.bottom + this.strip.height + 2;
    this.height = this.bottom + this.strip.height + READING;
  }

  /** The rows of two runs that belong together. @returns {RowPair[]} */
  _pair() {
    return [];
  }

  /** px for slots */
  get room() {
    return this.width - GUTTER - RIGHT;
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

  // Wide enough for a token's text: where all slots have that room, else where the last ones of
  // each row have it, beside the folded ones.
  _cell() {
    if (this.view.zoom != null) return ZOOMS[this.view.zoom];
    const { room } = this;
    const fits = room / this.last;
    if (fits >= ALL_FROM) return Math.min(fits, WIDEST);
    const needed = (room - FOLDED) / (this.span + 3);
    return Math.max(Math.min(needed, USUAL), SIGNS_FROM, fits);
  }

  // How many slots stand at full width.
  _count() {
    const { room } = this;
    if (this.last * this.cell <= room + 0.5) return this.last;
    const least = Math.min(this.span + 3, Math.floor((room - FOLDED) / this.cell));
    const most = Math.floor((room * (1 - FOLDED_SHARE)) / this.cell);
    return Math.max(Math.min(Math.max(least, most), this.last - 1), 1);
  }

  // Slot behind the last one that any row holds or awaits in this round.
  _last(film = this.film, step = this.step) {
    const ends = film
      .rows(step)
      .map(
        (row) => 1 + Math.max(row.pending + Math.max(row.drafted, row.gained), row.pending_after),
      );
    return Math.max(film.stage(step).width, ...ends);
  }

  // How far a round goes at most behind the pending token.
  _span(rows = this.rows) {
    return Math.max(...rows.map((row) => Math.max(row.drafted, row.gained)), 0);
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

  _firsts() {
    const slid = Math.round(this.view.pan ?? 0);
    const most = this.last - this.count;
    return this.rows.map((row) => {
      const end = Math.max(this.begin(row) + this.span + 2, row.pending_after + 1);
      return Math.min(Math.max(end - this.count - slid, 0), Math.max(most, 0));
    });
  }

  /** By row, the first position at full width; null: as many as by slots. @returns {number[] | null} */
  heads() {
    return null;
  }

  // Room for as many rows as the run ever has, so that the panel keeps its height.
  _rowTops() {
    const most = this.film.mostRows;
    const open = this.openHeight;
    const compact = most <= 8 ? open : most <= 24 ? 25 : 13;
    let y = this.top;
    for (let row = 0; row < this.rows.length; row++) {
      const wide = most <= 8 || row === this.view.row;
      const height = wide ? open : compact;
      this.lanes.push(this._lane(y, height, wide));
      y += height;
    }
    this.bottom = this.top + (most - 1) * compact + open;
  }

  /** px of an open row; more where the place has room for it */
  get openHeight() {
    if (!this.signs) return 36;
    const more =
      this.arrows + this.states + this.draftBar - DRAFT_BAR + (this.stacked ? DEEPER : 0);
    return this.texts ? Math.max(this.view.tall ?? OPEN, LOWEST) + more : 48 + more;
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
      const none = { positions: null, states: null, arrows: null, notes: null };
      return { y, height, open, tokens, target, draft, ...none };
    }
    const deep = this.stacked ? DEEPER : 0;
    const spare = height - this.arrows - this.states - deep - LOWEST; // px over those of the lowest open row
    const tokens = {
      y: y + 1,
      h: this.texts ? 14 + Math.min(Math.max(spare, 0) * 0.5, 10) : this.signs ? 16 : 10,
    };
    const hung = 10 + Math.min(Math.max(spare, 0) * 0.2, 3);
    const notes = this.signs ? { y: tokens.y + tokens.h + 1, h: hung } : null;
    const above = notes ?? tokens;
    const positions = this.texts ? { y: above.y + above.h + HANGS, h: 9 + deep } : null;
    const over = positions ?? above;
    const roomy = spare >= (this.draftBar > DRAFT_BAR ? 16 : 14);
    const target = { y: over.y + over.h, h: roomy ? 6 : spare > 4 ? 5 : 4 };
    const bar = Math.max(this.draftBar, roomy ? DRAFT_BAR + 1 : 0);
    const top = target.y + target.h + (roomy ? 2 : 1);
    const draft = { y: top, h: keepsNothing(this.film) ? 0 : bar };
    const under = draft.y + bar + 2;
    const states = this.signs && this.states ? { y: under, h: this.states } : null;
    const below = under + (states?.h ?? 0);
    const arrows = this.signs && this.arrows ? { y: below, h: this.arrows } : null;
    return {
      y,
      height,
      open,
      tokens,
      positions,
      target,
      draft,
      states,
      arrows,
      notes,
    };
  }

  /**
   * The left edge of a slot. position: that of the token in it, where it is known.
   * @param {number} row
   * @param {number} slot
   * @param {number} [position]
   */
  x(row, slot, position) {
    return this.places.x(row, slot, position);
  }
  /**
   * @param {number} row
   * @param {number} x
   */
  slotAt(row, x) {
    return this.places.slotAt(row, x);
  }
  /** @param {number} y */
  rowAt(y) {
    return this.lanes.findIndex((lane) => y >= lane.y && y < lane.y + lane.height);
  }
  get right() {
    return this.width - RIGHT;
  }
}
