// LanePainter: the cells and bars of one row's lanes, in the window of a StageLayout.

import { drawFolds, drawHung, drawStrip } from "./fold.js";
import { drawGuesses } from "./guesses.js";
import {
  barLooks,
  cellLooks,
  COMMITTED,
  HUNG,
  liesUnder,
  PALE,
  signFills,
  SIGNS,
} from "./lanelooks.js";
import { drawPosition } from "./positionpaint.js";
import { drawStates } from "./statelane.js";

/** @import { Band, Cell, FeedRun, LaneName, LaneRun, Pen, RowLanes } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

export class LanePainter {
  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  constructor(pen, at) {
    this.pen = pen;
    this.at = at;
    this.film = at.film;
    this.looks = cellLooks(pen.p);
    /** @type {Map<string, FeedRun[]>} */
    this.fed = new Map();
    this.wrong = at.film.wrongEnds(at.step);
    for (const feed of at.stage.feeds) {
      const key = `${feed[0]} ${feed[2]}`;
      this.fed.set(key, [...(this.fed.get(key) ?? []), feed]);
    }
  }

  /**
   * Calls visit(cell, x) for the slots of a lane that stand at full width.
   * @param {LaneName} which
   * @param {number} number
   * @param {(cell: Cell, x: number) => void} visit
   */
  _each(which, number, visit) {
    const { at } = this;
    for (const run of this.film.lane(at.step, which, number)) {
      if (!at.places.shows(run)) continue;
      const position = at.places.firstPosition(run);
      const [first, stop] = at.places.full(number, run[0], run[1], position);
      for (let slot = first; slot < stop; slot++)
        visit(this.film.cellOf(run, slot), at.x(number, slot, position + slot - run[0]));
    }
  }

  /**
   * Calls visit(kind, x, width, run) for the runs of a lane.
   * @param {LaneName} which
   * @param {number} number
   * @param {number} slide
   * @param {(kind: string, x: number, w: number, run: LaneRun) => void} visit
   */
  _runs(which, number, slide, visit) {
    const { at } = this;
    const { kinds } = this.film.json;
    for (const run of this.film.lane(at.step, which, number)) {
      if (!at.places.shows(run)) continue;
      const position = at.places.firstPosition(run);
      const x = at.x(number, run[0], position);
      const w = at.x(number, run[1], position + run[1] - run[0]) - x;
      if (w > 0) visit(kinds[run[2]], x + slide, w, run);
    }
  }

  /**
   * All rows; slides: px by which each is away from where it belongs. One kind of thing after the
   * other, since a context that has to change its font less is faster.
   * @param {number[]} slides
   * @param {Set<number>} moved rows with an arrow where thrown-away drafts would hang
   */
  paint(slides, moved) {
    const { at, pen } = this;
    /** @type {[RowLanes, Cell, number][]} */
    const cells = [];
    at.lanes.forEach((lane, number) => {
      const slide = slides[number];
      if (!at.signs || lane.tokens.h < 10) this._strip(number, lane, slide);
      else {
        drawFolds(pen, at, number, slide);
        this._each("tokens", number, (cell, x) => {
          const hidden = moved.has(number) && lane.notes !== null && HUNG.has(cell.kind);
          if (!hidden) cells.push([lane, this._judged(cell, number), x + slide]);
        });
      }
    });
    // What was thrown away hangs below the row's text.
    /** @param {[RowLanes, Cell, number]} at */
    const hangs = ([lane, { kind }]) => lane.notes !== null && HUNG.has(kind);
    const hung = cells.filter(hangs);
    const standing = hung.length ? cells.filter((cell) => !hangs(cell)) : cells;
    for (const cell of standing) this._box(...cell);
    for (const cell of standing) this._token(...cell);
    for (const [lane, cell, x] of hung) drawHung(pen, at, lane, cell, x);
    for (const cell of cells) this._below(...cell);
    for (const [number, slide] of slides.entries()) {
      this._bar("target", number, slide, this.pen.p.target);
      this._bar("draft", number, slide, this.pen.p.draft);
      drawStates(pen, at, number, slide);
    }
  }

  /**
   * @param {Cell} cell
   * @param {number} number
   */
  _judged(cell, number) {
    if (cell.kind === "bonus_now" && this.wrong.has(number)) cell.kind = "wrong_now";
    return cell;
  }

  /**
   * @param {RowLanes} lane
   * @param {Cell} cell
   * @param {number} x
   */
  _below(lane, cell, x) {
    if (lane.positions && cell.position >= 0)
      drawPosition(this.pen, this.at, lane.positions, cell, x);
    if (lane.positions && cell.kind === "unverified")
      this._sign(cell, x + this.at.cell / 2, lane.positions.y + lane.positions.h / 2);
    if (COMMITTED.has(cell.kind) && this.at.view.differs?.(cell.request, cell.index))
      this._differs(lane, x);
  }

  /**
   * A run at a time, for cells too small for signs.
   * @param {number} number
   * @param {RowLanes} lane
   * @param {number} slide
   */
  _strip(number, lane, slide) {
    this._runs("tokens", number, slide, (kind, x, w) => {
      if (kind === "empty" || kind === "padding") return;
      const shown = kind === "bonus_now" && this.wrong.has(number) ? "wrong_now" : kind;
      drawStrip(this.pen, this.looks[shown], shown, { ...lane.tokens, x, w }, this.at.cell);
    });
  }

  /**
   * @param {RowLanes} at
   * @param {Cell} at
   * @param {number} x
   */
  _box({ tokens: { y, h } }, { kind, origin }, x) {
    const { pen, at } = this;
    if (kind === "padding") return;
    if (kind === "empty") pen.rect(x + 1, y + h - 1, at.cell - 2, 1, { fill: pen.p.faint });
    else
      pen.rect(x + 1, y, at.cell - 2, h, {
        ...this.looks[kind === "held" ? origin || "p" : kind],
        radius: 4,
      });
  }

  /**
   * @param {RowLanes} lane
   * @param {Cell} cell
   * @param {number} x
   */
  _token(lane, cell, x) {
    const { pen, at } = this;
    const { p } = pen;
    const middle = x + at.cell / 2;
    const y = lane.tokens.y + lane.tokens.h / 2;
    if (cell.kind === "empty") return;
    if (cell.kind === "padding")
      return pen.text("·", middle, y, { size: 11, fill: p.muted, align: "center" });
    if (!at.texts) return this._sign(cell, middle, y);
    const fill = PALE.has(cell.kind) ? p.muted : p.ink;
    const size = lane.open ? (at.large ? 12 : 10.5) : 9;
    pen.text(this.film.text(cell.token), middle, y, {
      size,
      mono: true,
      align: "center",
      fill,
      max: at.cell - 5,
    });
  }

  /**
   * @param {Cell} cell
   * @param {number} x
   * @param {number} y
   */
  _sign(cell, x, y) {
    const { p } = this.pen;
    const sign = cell.kind === "held" ? "" : (SIGNS[cell.kind] ?? "");
    const fill = signFills(p)[cell.kind] ?? p.muted;
    const string = sign || ([...this.film.text(cell.token)][0] ?? "");
    this.pen.text(string, x, y, {
      size: 10,
      fill,
      align: "center",
      mono: !sign,
      weight: sign ? 700 : 400,
    });
  }

  /**
   * @param {RowLanes} lane
   * @param {number} x
   */
  _differs(lane, x) {
    const bottom = lane.tokens.y + lane.tokens.h;
    for (const up of [1, 4])
      this.pen.rect(x + 2, bottom - up, this.at.cell - 4, 1.5, { fill: this.pen.p.red });
  }

  /**
   * K/V of one model, slot by slot: full where it counts, hatched where it is stale, outlined where
   * there is none.
   * @param {LaneName} which
   * @param {number} number
   * @param {number} slide
   * @param {string} colour
   */
  _bar(which, number, slide, colour) {
    const { p } = this.pen;
    const lane = this.at.lanes[number][which];
    const { request: own } = this.at.rows[number];
    if (!lane.h) return;
    const looks = barLooks(p, colour, lane.h);
    this._runs(which, number, slide, (kind, x, w, [, , , index, , request]) => {
      const under = kind === "pending" && liesUnder(index, request, own);
      const none = lane.h > 3 ? { stroke: p.faint } : null;
      const look = looks[under ? "stale" : kind] ?? none;
      if (look)
        this.pen.rect(
          kind === "held" || w < 2 ? x : x + 0.5,
          lane.y,
          kind === "held" || w < 2 ? w : w - 1,
          lane.h,
          look,
        );
    });
    if (which === "draft") drawGuesses(this.pen, this.at, number, slide);
    this._written(which, number, slide, lane);
  }

  /**
   * Slots that a forward of this phase has written.
   * @param {LaneName} which
   * @param {number} number
   * @param {number} slide
   * @param {Band} lane
   */
  _written(which, number, slide, lane) {
    if (lane.h < 3) return;
    for (const [, , , slot, count] of this.fed.get(`${which === "target" ? 0 : 1} ${number}`) ??
      []) {
      const x = this.at.x(number, slot);
      const w = this.at.x(number, slot + count) - x;
      this.pen.rect(x + slide, lane.y - 1, Math.max(w, 2), lane.h + 2, {
        stroke: this.pen.p.ink,
        radius: 2,
      });
    }
  }
}
