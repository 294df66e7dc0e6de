// FramePainter: what stands behind and around the rows of the batch panel: the band of the chosen
// row, the map of the whole cache, the slots' numbers, and each row's label.

import { keepsNothing } from "../film/head.js";
import { isFull } from "../film/tree.js";
import { GUTTER } from "./layout.js";

/** @import { Pen, RowEntry, RowLanes } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

const TICKS = [1, 5, 10, 25, 50, 100, 250, 500, 1000];

export class FramePainter {
  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  constructor(pen, at) {
    this.pen = pen;
    this.at = at;
  }

  paint() {
    this._backdrop();
    if (this.at.mapped) this._map();
    this._axis();
  }

  _backdrop() {
    const { pen, at } = this;
    const lane = at.lanes[at.view.row];
    if (lane && at.rows.length > 1)
      pen.rect(4, lane.y, at.width - 8, lane.height, { fill: pen.p.blueSoft, radius: 6 });
  }

  _map() {
    const { pen, at } = this;
    const h = at.mapHeight / at.rows.length;
    pen.text("whole cache", GUTTER - 12, at.mapTop + at.mapHeight / 2, {
      size: 10,
      fill: pen.p.muted,
      align: "right",
    });
    pen.rect(GUTTER, at.mapTop, at.mapX(at.last) - GUTTER, at.mapHeight, {
      fill: pen.p.greySoft,
    });
    at.rows.forEach((_row, number) => this._mapRow(number, at.mapTop + number * h, h));
    // Where all rows show the same slots, one frame encloses them all.
    if (at.shared) this._mapWindow(0, at.mapTop - 2, at.mapHeight + 4);
    else at.rows.forEach((_, n) => this._mapWindow(n, at.mapTop + n * h - 1, h + 1));
  }

  /**
   * @param {number} number
   * @param {number} y
   * @param {number} h
   */
  _mapRow(number, y, h) {
    const { pen, at } = this;
    const { p } = pen;
    /** @type {Record<string, string>} */
    const colours = {
      held: p.target,
      drafted: p.blue,
      pending: p.blue,
      accepted_now: p.green,
      bonus_now: p.amber,
      rejected_now: p.orange,
      stale: p.stale,
      discarded_now: p.amber,
      unreached_now: p.stale,
    };
    const gap = h > 2 ? 1 : 0;
    for (const [first, stop, kind] of at.film.lane(at.step, "tokens", number)) {
      const fill = colours[at.film.json.kinds[kind]];
      if (!fill) continue;
      const x = at.mapX(first);
      pen.rect(x, y, Math.max(at.mapX(stop) - x, 1), Math.max(h - gap, 1), { fill });
    }
  }

  /**
   * The slots of a row that the panel shows, as a frame on the map.
   * @param {number} number
   * @param {number} y
   * @param {number} h
   */
  _mapWindow(number, y, h) {
    const { pen, at } = this;
    const x = at.mapX(Math.max(at.firsts[number], 0));
    const w = at.mapX(Math.min(at.firsts[number] + at.count, at.last)) - x;
    if (w > 0) pen.rect(x - 1, y, w + 2, h, { stroke: pen.p.blue, width: 1.5, radius: 2 });
  }

  _axis() {
    const { pen, at } = this;
    const y = at.top - 8;
    const look = { size: 10, fill: pen.p.muted };
    if (!at.shared) {
      const words = "each row in its own window, so that all drafts begin in one column";
      pen.text(words, GUTTER, y, { ...look, max: at.right - GUTTER });
      return;
    }
    const every = TICKS.find((each) => each * at.cell >= 44) ?? 2000;
    const first = Math.ceil(Math.max(at.firsts[0], 0) / every) * every;
    const stop = Math.min(at.firsts[0] + at.count, at.last);
    for (let slot = first; slot < stop; slot += every)
      pen.text(String(slot), at.x(0, slot) + at.cell / 2, y, { ...look, align: "center" });
    pen.text("slot", GUTTER - 12, y, { ...look, align: "right" });
  }

  /**
   * @param {RowEntry} row
   * @param {number} number
   */
  label(row, number) {
    const { pen, at } = this;
    const lane = at.lanes[number];
    const judged = at.film.judged(at.step);
    const middle = lane.tokens.y + lane.tokens.h / 2;
    const small = lane.height <= 14;
    const size = lane.open ? 12.5 : small ? 9.5 : 11;
    pen.text(small ? String(number) : `row ${number}`, 12, middle, { size, weight: 650 });
    if (judged) this._gain(row, middle, small);
    else {
      const look = { size: small ? 9 : 10.5, fill: pen.p.muted, align: "right" };
      pen.text(`n ${row.length}`, 104, middle, look);
    }
    if (lane.open && at.signs) this._details(row, number, middle);
  }

  /**
   * Under the name of a row that is open: its length, its request, and what its lanes are.
   * @param {RowEntry} row
   * @param {number} number
   * @param {number} middle
   */
  _details(row, number, middle) {
    const { pen, at } = this;
    const judged = at.film.judged(at.step);
    const named = number === at.view.row && at.texts;
    const fill = pen.p.muted;
    const request = `request ${row.request}`;
    const length = `n ${row.length}→${row.length + row.gained}${row.finished ? " · end" : ""}`;
    const room = GUTTER - 20; // px; less where the lanes' names stand beside it
    const look = { size: 10.5, fill, max: named ? 62 : room };
    pen.text(judged ? length : request, 12, middle + 19, look);
    if (at.texts && judged)
      pen.text(request, 12, middle + 33, { size: 10, fill, max: named ? 58 : room });
    if (named) this._laneNames(at.lanes[number]);
  }

  /** @param {RowLanes} lane */
  _laneNames(lane) {
    const { pen } = this;
    const look = { size: 8.5, fill: pen.p.muted, align: "right" };
    const positions = lane.positions ?? lane.tokens;
    pen.text("position", GUTTER - 4, positions.y + positions.h / 2, look);
    pen.text("target K/V", GUTTER - 4, lane.target.y + lane.target.h / 2 - 1, look);
    if (keepsNothing(this.at.film)) return;
    const drafter = this.at.film.json.head ? "head" : "draft";
    pen.text(`${drafter} K/V`, GUTTER - 4, lane.draft.y + lane.draft.h / 2 + 3, look);
  }

  /**
   * @param {RowEntry} row
   * @param {number} y
   * @param {boolean} small
   */
  _gain(row, y, small) {
    const { p } = this.pen;
    const [x, h, size] = small ? [70, 11, 9] : [66, 16, 11];
    const full = isFull(row);
    const fill = row.gained === 0 ? p.greySoft : row.accepted ? p.greenSoft : p.orangeSoft;
    const stroke = row.gained === 0 ? p.grey : full ? p.green : undefined;
    const words = row.gained ? `+${row.gained}` : "idle";
    this.pen.rect(x, y - h / 2, 38, h, { fill, stroke, radius: h / 2 });
    this.pen.text(words, x + 19, y, { size, weight: 650, align: "center" });
  }
}
