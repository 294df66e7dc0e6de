// MaskPainter: how the queries and slots of an attention mask look. It judges nothing.

import { counted, PAD } from "../draw/words.js";
import { driftsAway } from "../film/positions.js";
import { draftAt } from "../film/tree.js";
import { MASK_TICKS } from "./masklayout.js";
import { sumOf } from "../film/tally.js";

/** @import { MaskPart, Pen, Query, Sight, TextLook, View } from "../types.d.ts" */
/** @import { MaskLayout } from "./masklayout.js" */

// Every how many slots or queries there may be a label.
const MASK_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, Infinity];

/**
 * One cell or many alike; `signed`: large enough for a sign; smaller ones that are wrong are
 * hatched or outlined together.
 * @param {Pen} pen
 * @param {Sight} verdict
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {boolean} signed
 */
export function drawSight(pen, verdict, x, y, w, h, signed) {
  const { p } = pen;
  const hatched = w >= 6 && h >= 6;
  /** @param {string} hatch */
  const grain = (hatch) => (hatched ? { hatch } : {});
  if (verdict === "hidden")
    pen.rect(x, y, w, h, { fill: p.greySoft, ...(signed ? grain(p.grey) : {}) });
  else if (verdict === "hole")
    pen.rect(x, y, w, h, { fill: p.redSoft, ...(hatched ? { stroke: p.red, width: 1.5 } : {}) });
  else if (verdict === "beyond")
    pen.rect(x, y, w, h, { fill: p.greySoft, ...(hatched ? { stroke: p.target } : {}) });
  else if (verdict === "leak" && !signed) pen.rect(x, y, w, h, { fill: p.red, ...grain(p.panel) });
  else
    pen.rect(x, y, w, h, {
      fill: { seen: p.target, own: p.green, blank: p.greySoft, leak: p.red }[verdict],
    });
  if (!signed) return;
  const [cx, cy, arm] = [x + w / 2, y + h / 2, Math.min(w, h) * 0.22];
  if (verdict === "own") pen.rect(cx - 1.5, cy - 1.5, 3, 3, { fill: p.panel, radius: 1.5 });
  if (verdict === "hole") pen.line(cx - arm, cy, cx + arm, cy, { stroke: p.red, width: 1.5 });
  if (verdict !== "leak") return;
  pen.line(cx - arm, cy - arm, cx + arm, cy + arm, { stroke: p.panel, width: 1.5 });
  pen.line(cx - arm, cy + arm, cx + arm, cy - arm, { stroke: p.panel, width: 1.5 });
}

export class MaskPainter {
  /**
   * @param {Pen} pen
   * @param {View} view
   * @param {MaskLayout} at
   */
  constructor(pen, view, at) {
    this.pen = pen;
    this.view = view;
    this.at = at;
    this.cells = at.cells;
    this.p = pen.p;
    this.bottom = MASK_TICKS + at.height;
    this.lit = view.hover?.row === view.row ? view.hover : null;
  }

  paint() {
    const {
      at,
      cells: { queries },
    } = this;
    const every = MASK_STEPS.find((step) => step * at.line >= (step === 1 ? 11.5 : 18)) ?? Infinity;
    this._ticks();
    this._bands().forEach(([n, y, h]) => this._query(queries[n], MASK_TICKS + y, h));
    queries.forEach((query, n) => {
      if (n % every === 0) this._label(query, MASK_TICKS + Math.max((n + 0.5) * at.line, 7));
    });
    this._grid();
    this._crosshair();
  }

  // [query, y, height] of what is drawn: every query, or where several share a pixel the one with
  // the most wrong.
  _bands() {
    const {
      cells: { queries, leaks, holes },
      at,
    } = this;
    const bands = [];
    /** @param {Query} at */
    const faulty = ({ segments }) =>
      segments.filter((each) => each[2] === "leak" || each[2] === "hole");
    const well = !leaks.length && !holes.length;
    /** @param {number} n */
    const wrong = (n) =>
      well ? 0 : sumOf(faulty(queries[n]).map(([start, stop]) => stop - start));
    for (let n = 0, y = 0; n < queries.length; y = Math.round(n * at.line)) {
      let worst = n;
      for (n += 1; n < queries.length && Math.round((n + 1) * at.line) <= y + 1; n++)
        if (wrong(n) > wrong(worst)) worst = n;
      bands.push([worst, y, Math.round(n * at.line) - y]);
    }
    return bands;
  }

  /**
   * @param {Query} query
   * @param {number} y
   * @param {number} height
   */
  _query(query, y, height) {
    const { at } = this;
    const h = height - (height >= 6 ? 1 : 0);
    for (const part of at.parts) {
      const signed = part.cell >= 7 && at.line >= 9;
      for (const [start, stop, verdict] of query.segments) {
        const [first, last] = [Math.max(start, part.first), Math.min(stop, part.stop)];
        if (first >= last) continue;
        const x = part.x + (first - part.first) * part.cell;
        const w = (last - first) * part.cell;
        const faulty = verdict === "leak" || verdict === "hole";
        if (!signed || !(faulty || verdict === "own"))
          drawSight(this.pen, verdict, x, y, faulty ? Math.max(w, 1.5) : w, h, signed);
        else
          for (let slot = 0; slot < last - first; slot++)
            drawSight(this.pen, verdict, x + slot * part.cell, y, part.cell - 1, h, true);
      }
    }
  }

  /**
   * @param {Query} query
   * @param {number} y
   */
  _label(query, y) {
    const { pen, at, p } = this;
    const drift = at.cells.drifts > 0 && driftsAway(query);
    const own = this._points(query);
    const name = own ? { size: 11.5, fill: p.blue, weight: 700 } : { size: 11.5, fill: p.ink };
    pen.text(query.name, PAD, y, name);
    if (at.wide)
      pen.text(query.text, PAD + at.names, y, {
        size: 11,
        mono: true,
        fill: p.muted,
        max: 64,
      });
    const known = query.position < 0 ? "–" : `${query.position}`;
    const words = drift ? `${known} ≠ ${query.index}` : known;
    pen.text(words, at.left - 8, y, {
      size: 11,
      fill: drift ? p.red : p.muted,
      weight: drift ? 700 : 400,
      align: "right",
    });
  }

  /**
   * Whether a query is what is pointed at. Several drafts of a tree have one index.
   * @param {Query} query
   */
  _points(query) {
    const { film, step, row } = this.view;
    if (this.lit?.index !== query.index) return false;
    const draft = draftAt(film, step, row, this.lit);
    return draft < 0 || query.node === 0 || draft === query.node - 1;
  }

  // Gaps between cells that are wide enough for them.
  _grid() {
    for (const { x, cell, first, stop, folded } of this.at.parts) {
      if (folded || cell < 5) continue;
      for (let slot = first + 1; slot < stop; slot++) {
        this.pen.rect(x + (slot - first) * cell - 1, MASK_TICKS, 1, this.at.height, {
          fill: this.p.panel,
        });
      }
    }
  }

  _ticks() {
    const { pen, at, p } = this;
    const y = MASK_TICKS / 2 - 1;
    const look = { size: 11, fill: p.muted };
    pen.text("query", PAD, y, look);
    pen.text(at.wide ? "position" : "pos.", at.left - 8, y, { ...look, align: "right" });
    for (const part of at.parts) {
      if (part.folded) this._folded(part, y, look);
      else this._numbers(part, y, look);
    }
  }

  /**
   * @param {MaskPart} part
   * @param {number} y
   * @param {TextLook} look
   */
  _folded(part, y, look) {
    const { pen, at } = this;
    const room = at.end(part) - part.x;
    const long = `… ${counted(part.stop - part.first, "slot")}`;
    pen.text(pen.measure(long, look) <= room ? long : `… ${part.stop - part.first}`, part.x, y, {
      ...look,
      max: room + 6,
    });
  }

  /**
   * @param {MaskPart} part
   * @param {number} y
   * @param {TextLook} look
   */
  _numbers(part, y, look) {
    const { pen, at } = this;
    const every = MASK_STEPS.find((step) => step * part.cell >= 34) ?? Infinity;
    for (let slot = Math.ceil(part.first / every) * every; slot < part.stop; slot += every) {
      const x = part.x + (slot - part.first + 0.5) * part.cell;
      const w = pen.measure(`${slot}`, look) / 2;
      if (x - w >= part.x - 4 && x + w <= at.end(part) + 8)
        pen.text(`${slot}`, x, y, { ...look, align: "center" });
    }
  }

  // The slot under the pointer, wherever that is on the page.
  _crosshair() {
    if (!this.lit || this.lit.slot === null || this.lit.slot === undefined) return;
    const { pen, at, p } = this;
    const slot = this._slotOf(this.lit.slot);
    if (slot === null) return;
    const part = at.parts.find((each) => slot >= each.first && slot < each.stop);
    if (!part) return;
    const x = at.x(slot);
    const w = Math.max(part.cell, 2);
    const label = `${slot}`;
    const half = pen.measure(label, { size: 11, weight: 700 }) / 2 + 3;
    pen.rect(x - 1.5, MASK_TICKS - 2, w + 2, at.height + 4, {
      stroke: p.blue,
      width: 2,
      radius: 2,
    });
    const middle = Math.min(Math.max(x + part.cell / 2, at.left + half), at.width - PAD / 2 - half);
    pen.rect(middle - half - 10, 1, 2 * half + 20, 15, { fill: p.panel });
    pen.text(label, middle, MASK_TICKS / 2 - 1, {
      size: 11,
      weight: 700,
      fill: p.blue,
      align: "center",
    });
  }

  /**
   * Where something that now lies in `slot` lay at the time of the forward, null for a draft that it
   * did not read. The draft model writes drafts of trees elsewhere than the target.
   * @param {number} slot
   */
  _slotOf(slot) {
    const { film, step, row } = this.view;
    const draft = draftAt(film, step, row, this.lit);
    const query = this.cells.queries.find((each) => each.node === draft + 1);
    if (draft >= 0) return query?.slot ?? null;
    for (let before = 0; before < this.cells.slots; before++)
      if (this.cells.now(before) === slot) return before;
    return slot;
  }
}
