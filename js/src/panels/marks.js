// MarkPainter: what is marked in and under the rows of the batch panel: how their K/V moved, which
// draft was rejected, where the drafts begin, what is violated, what is pointed at.

import { drawHung } from "./fold.js";
import { GUTTER } from "./layout.js";

/** @import { Cell, Pen, RowEntry, RowLanes, ViolationEntry } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

export class MarkPainter {
  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  constructor(pen, at) {
    this.pen = pen;
    this.at = at;
    // In the acceptance, K/V moves within a row only, to follow a branch: the row itself stays.
    this.stays = at.film.phaseName(at.step) === "accept";
    this.shifts = this._shifts();
  }

  /**
   * By row: how many slots to the right its K/V moved, from which other row it came (null: none),
   * and how many slots the target's cache copied.
   */
  _shifts() {
    /** @type {Map<number, { by: number, from: number | null, slots: number }>} */
    const found = new Map();
    for (const [model, , from, fromSlot, to, toSlot, length] of this.at.stage.moves) {
      if (to < 0) continue; // into a row of the cache that is not in the batch
      if (this.stays && from === to) continue;
      const entry = found.get(to) ?? { by: 0, from: null, slots: 0 };
      if (from !== to) entry.from = from;
      else if (model === 0) entry.by = toSlot - fromSlot;
      if (model === 0) entry.slots += length;
      found.set(to, entry);
    }
    return found;
  }

  /**
   * px to the right of its place at which each row is drawn; away: 1 before it moves, 0 once it is
   * there.
   * @param {number} away
   */
  slides(away) {
    const { at } = this;
    return at.rows.map(
      (_, number) => -(this.shifts.get(number)?.by ?? 0) * at.cell * away * (1 - at.view.turn),
    );
  }

  /**
   * Under a row's lanes: how its K/V moved.
   * @param {RowEntry} row
   * @param {number} number
   */
  motion(row, number) {
    const { pen, at } = this;
    const { notes } = at.lanes[number];
    const shift = this.shifts.get(number);
    if (!shift || !notes) return;
    const y = notes.y + notes.h / 2;
    const look = { size: 10, fill: pen.p.blue };
    if (shift.from !== null) {
      const origin = shift.from < 0 ? `cache row ${-1 - shift.from}` : `row ${shift.from}`;
      pen.text(`⇡ K/V copied here from ${origin}: ${shift.slots} slots`, GUTTER, y, look);
      return;
    }
    if (!shift.by) return;
    const gained = at.film.judged(at.step) ? row.gained : 0;
    const head = at.x(number, at.begin(row) + 1 + gained);
    const end = Math.min(Math.max(head, GUTTER + 30), at.right);
    const tail = Math.min(Math.max(end - shift.by * at.cell, GUTTER + 4), at.right - 4);
    pen.line(tail, y, end, y, { stroke: pen.p.blue, width: 1.75, arrow: true });
    const words = `moved ${Math.abs(shift.by)} ${shift.by > 0 ? "right" : "left"}`;
    pen.text(words, Math.min(tail, end) - 8, y, { ...look, align: "right" });
  }

  /**
   * Under a row's last token: the draft in whose slot it stands, which was rejected for it.
   * @param {RowEntry} row
   * @param {number} number
   */
  rejection(row, number) {
    const { pen, at } = this;
    const { notes } = at.lanes[number];
    const { film } = at;
    const slot = row.end ?? row.pending + row.gained;
    const x = at.x(number, slot);
    const rejects = film.judged(at.step) && row.gained > row.accepted;
    if (!notes || !rejects || x < GUTTER || x >= at.right) return;
    if (film.phase(at.step) > 3 && (this.shifts.has(number) || row.pending_after !== slot)) return;
    const token = film.rejectedDraft(row);
    if (token === null || !standsAt(at, number, slot)) return;
    drawHung(pen, at, at.lanes[number], hungCell(token), x);
  }

  /** Rows under which it is said how their K/V moved, so that nothing else may hang there. */
  get moved() {
    const found = [...this.shifts].filter(([, { by, from }]) => by !== 0 || from !== null);
    return new Set(found.map(([number]) => number));
  }

  /** Over all rows. */
  paint() {
    const { at } = this;
    if (at.signs) this.begin();
    this.verdicts();
  }

  /** What is violated, what is pointed at. */
  verdicts() {
    const { at } = this;
    at.film.violationsAt(at.step).forEach((each) => this._violation(each));
    this._pointed();
  }

  /** @param {boolean} [named] whether it is said that the drafts begin there */
  begin(named = true) {
    const { pen, at } = this;
    const xs = at.rows.map((row, number) => at.x(number, at.begin(row) + 1));
    const look = { stroke: pen.p.blue, dash: [2, 3] };
    xs.forEach((x, number) => {
      const { y } = at.lanes[number];
      if (x >= GUTTER && x <= at.right) pen.line(x, y, x, foot(at.lanes[number]), look);
    });
    const word = draftsWord(at);
    if (!named || !at.rows.length || word.x >= at.right - 63) return;
    pen.text("drafts →", word.x, at.top - 9, { size: 10, fill: pen.p.blue, align: word.align });
  }

  /** @param {ViolationEntry} each */
  _violation({ row, slot, rule, model }) {
    const { pen, at } = this;
    const lane = at.lanes[row];
    if (!lane) return;
    const { tokens, positions, target, draft } = lane;
    const { red } = pen.p;
    const look = { size: lane.open ? 11 : 8, fill: red, align: "center" };
    pen.text("▲", 6, tokens.y + tokens.h / 2, look); // before the row's name
    if (slot === null || slot === undefined) return;
    const x = at.x(row, slot);
    const w = Math.max(at.x(row, slot + 1) - x, 3);
    if (x < GUTTER - at.cell || x > at.right) return;
    const ofRule = { positions: positions ?? tokens, kv: target }[rule] ?? tokens;
    const { y, h } = model === 1 ? draft : ofRule;
    const box = { stroke: red, width: 2, radius: 3 };
    pen.rect(Math.max(x, GUTTER), y - 1, w, h + 2, box);
  }

  _pointed() {
    const { pen, at } = this;
    const spot = at.view.hover;
    if (!spot || spot.row === null || spot.slot === null || spot.slot === undefined) return;
    const lane = at.lanes[spot.row];
    if (!lane) return;
    const x = at.x(spot.row, spot.slot);
    if (x < GUTTER || x + 1 > at.right) return;
    const { blue } = pen.p;
    const w = at.x(spot.row, spot.slot + 1) - x;
    if (at.shared) pen.rect(x + w / 2 - 0.5, at.top - 2, 1, at.bottom - at.top, { fill: blue });
    const height = foot(lane) - lane.y + 1;
    const box = { stroke: blue, width: 2, radius: 4 };
    pen.rect(x, lane.y + 1, Math.max(w, 3), height, box);
  }
}

/**
 * The bottom of a row's lanes.
 * @param {RowLanes} lane
 */
const foot = ({ draft, states }) => (states ? states.y + states.h : draft.y + draft.h);

/**
 * Whether the row's last token stands in that slot; elsewhere the rejected draft has it itself.
 * @param {StageLayout} at
 * @param {number} number
 * @param {number} slot
 */
function standsAt(at, number, slot) {
  const kind = at.film.cell(at.step, "tokens", number, slot)?.kind;
  return kind === "bonus_now" || kind === "wrong_now";
}

/**
 * @param {number} token
 * @returns {Cell}
 */
function hungCell(token) {
  return { kind: "rejected_now", index: -1, position: -1, request: -1, token, origin: "" };
}

const WORD = 46; // px that "drafts →" takes

/**
 * Where "drafts →" stands on the axis: before the drafts, so that their slots keep their numbers,
 * or behind their beginning where there is no room before.
 * @param {StageLayout} at
 */
export function draftsWord(at) {
  const begin = at.rows.length ? at.x(0, at.begin(at.rows[0]) + 1) : 0;
  const before = at.shared && begin - WORD - 3 > GUTTER + 20; // "0" stands there
  return before
    ? { x: begin - 4, align: "right", from: begin - WORD - 14, to: begin + 7 }
    : { x: begin + 3, align: "left", from: begin, to: begin + 56 };
}
