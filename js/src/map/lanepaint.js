// LanePainter: the lanes of a run: each round of a request as a block that is split into accepted,
// bonus and thrown away, and signs for what happened. Colours are drawn one after the other, since
// to change them is most of what drawing costs.

import { blockIn, GUTTER, RIGHT } from "./layout.js";

/** @import { Pen, Range } from "../types.d.ts" */
/** @import { Axis } from "./axis.js" */
/** @import { MapLayout } from "./layout.js" */
/** @import { Block, Tally } from "../film/tally.js" */

const NARROWEST = 3; // px of a block; narrower rounds share one
const SEPARATE = 5; // px from which blocks stand apart

export class LanePainter {
  /**
   * parts: the round in which each request's text parts from the other run's, -1 for none
   * @param {Pen} pen
   * @param {{ axis: Axis, layout: MapLayout, tally: Tally, run: number, parts: number[] }} of
   */
  constructor(pen, { axis, layout, tally, run, parts }) {
    this.pen = pen;
    this.axis = axis;
    this.layout = layout;
    this.tally = tally;
    this.run = run;
    this.parts = parts;
    this.group = layout.groups[run];
    this.block = blockIn(this.group.pitch);
    /** @type {Map<string, number[][]>} */
    this.boxes = new Map();
  }

  paint() {
    const { pen, group, layout } = this;
    const last = group.first + group.shown;
    for (let request = group.first; request < last; request++) this._lane(request);
    const [top, height] = [group.lanes - 2, group.shown * group.pitch + 4];
    pen.clip(GUTTER, top, layout.room, height, () => {
      this._waits();
      for (const [fill, boxes] of this.boxes)
        for (const [x, y, w, h] of boxes) pen.rect(x, y, w, h, { fill });
    });
    // A sign may stand beside the first or the last round.
    pen.clip(GUTTER - 8, top, layout.room + 8 + RIGHT, height, () => {
      for (let request = group.first; request < last; request++) this._signs(request);
      this._first();
    });
  }

  /** @param {number} round */
  _x(round) {
    return GUTTER + this.axis.x(this.axis.start(this.tally, round), this.layout.room);
  }

  /** @param {number} request */
  _y(request) {
    return this.group.lanes + (request - this.group.first) * this.group.pitch;
  }

  /**
   * The rounds that are seen, with one more on each side.
   * @returns {Range}
   */
  get _seen() {
    const { axis, tally } = this;
    const [first, stop] = axis.roundsIn(tally, [axis.from, axis.to]);
    return [first - 1, stop + 1];
  }

  /**
   * @param {string} fill
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   */
  _box(fill, x, y, w, h) {
    if (w <= 0) return;
    const boxes = this.boxes.get(fill);
    if (boxes) boxes.push([x, y, w, h]);
    else this.boxes.set(fill, [[x, y, w, h]]);
  }

  /**
   * Neighbouring rounds that would be too narrow share a block.
   * @param {number} request
   */
  _lane(request) {
    const [first, stop] = this._seen;
    /** @type {Block[]} */
    let some = [];
    for (const block of this.tally.lanes[request]) {
      if (block.round < first || block.round >= stop) continue;
      const begun = some[0];
      const follows = begun && some[some.length - 1].round === block.round - 1;
      if (begun && (!follows || this._x(block.round) - this._x(begun.round) >= NARROWEST)) {
        this._blocks(some, request);
        some = [];
      }
      some.push(block);
    }
    if (some.length) this._blocks(some, request);
  }

  /**
   * @param {Block[]} some
   * @param {number} request
   */
  _blocks(some, request) {
    const { p } = this.pen;
    const { h, low } = this.block;
    const x = this._x(some[0].round);
    const next = this._x(some[some.length - 1].round + 1);
    const room = next - x - (next - x >= SEPARATE ? 1 : 0);
    const y = this._y(request);
    const [accepted, own, thrown] = ["accepted", "own", "thrown"].map((name) =>
      some.reduce((sum, block) => sum + block[/** @type {"own"} */ (name)], 0),
    );
    const all = accepted + own + thrown;
    if (!all) {
      this._box(p.faint, x, y + h / 2 - 0.5, room, 1);
      return;
    }
    const [a, b] = [(room * accepted) / all, (room * own) / all];
    this._box(p.green, x, y, a, h);
    this._box(p.bonus, x + a, y, b, h);
    this._box(p.stale, x + a + b, y + h - low, room - a - b, low);
    this._under(some, x, y + h, next - x);
  }

  /**
   * Under a block, where lanes are high enough: K/V was copied. Over it: something is violated.
   * @param {Block[]} some
   * @param {number} x
   * @param {number} y
   * @param {number} w
   */
  _under(some, x, y, w) {
    const { tally, group, block } = this;
    const { p } = this.pen;
    /** @param {string} name */
    const any = (name) => some.some((each) => tally.has(each, name));
    const open = group.pitch >= 8;
    if (open && any("moved")) this._box(p.blue, x, y + 0.5, w, 1.5);
    if (any("violation")) this._box(p.red, x, y - block.h, w, open ? 1.5 : 1);
  }

  _waits() {
    const { pen, tally, group, block, layout } = this;
    const [first, stop] = this._seen;
    const last = group.first + group.shown;
    for (let request = group.first; request < last; request++)
      for (const [from, to] of tally.waits[request]) {
        if (to < first || from > stop) continue;
        const y = Math.floor(this._y(request) + block.h / 2) + 0.5;
        const left = Math.max(this._x(from), GUTTER);
        const right = Math.min(this._x(to), GUTTER + layout.room);
        pen.line(left, y, right, y, { stroke: pen.p.grey, dash: [1, 3] });
      }
  }

  /** @param {number} request */
  _signs(request) {
    const { tally } = this;
    const [first, stop] = this._seen;
    const y = this._y(request);
    const blocks = tally.lanes[request];
    for (const block of [blocks[0], blocks[blocks.length - 1]]) {
      if (!block || block.round < first || block.round >= stop) continue;
      this._entry(block, y);
    }
    const ended = blocks.findLast((block) => this._ended(block));
    if (ended && ended.round >= first && ended.round < stop) this._end(ended, y);
    this._parting(request, y);
  }

  /** @param {Block} block */
  _ended(block) {
    return ["eos", "budget", "stopped"].some((name) => this.tally.has(block, name));
  }

  /**
   * @param {Block} block
   * @param {number} y
   */
  _entry(block, y) {
    const { pen, tally } = this;
    const x = this._x(block.round);
    if (tally.has(block, "refill") && this._sees(x)) drawEntry(pen, x, y, this.block.h);
  }

  /**
   * @param {Block} block
   * @param {number} y
   */
  _end(block, y) {
    const { tally } = this;
    const kind = ["eos", "budget", "stopped"].find((name) => tally.has(block, name)) ?? "";
    const x = this._x(block.round + 1);
    if (this._sees(x)) drawEnd(this.pen, kind, x, y, this.block.h);
  }

  /** @param {number} x */
  _sees(x) {
    return x > GUTTER - 1 && x < GUTTER + this.layout.room + 1;
  }

  /**
   * Where a text parts from the other run's, and from there on.
   * @param {number} request
   * @param {number} y
   */
  _parting(request, y) {
    const round = this.parts[request] ?? -1;
    if (round < 0) return;
    const { pen, block, group, tally } = this;
    const [x, end] = [this._x(round), this._x((tally.lanes[request].at(-1)?.round ?? 0) + 1)];
    const open = group.pitch >= 8;
    const left = Math.max(x, GUTTER);
    const right = Math.min(end, GUTTER + this.layout.room);
    if (right <= left) return;
    pen.rect(left, y + block.h + 0.5, right - left, open ? 1.5 : 1, { fill: pen.p.ink });
    if (x < GUTTER - 1) return;
    const at = Math.max(x, GUTTER + 5);
    if (open) drawSign(pen, "≠", at, y + block.h / 2, pen.p.ink);
    else pen.rect(x, y, 2, block.h + 1, { fill: pen.p.ink });
  }

  _first() {
    const { first } = this.tally;
    const { pen, group, block } = this;
    if (!first) return;
    const place = first.request - group.first;
    if (place < 0 || place >= group.shown) return;
    const middle = (this._x(first.round) + this._x(first.round + 1)) / 2;
    if (!this._sees(middle)) return;
    drawSign(pen, "▲", middle, this._y(first.request) + block.h / 2, pen.p.red);
  }
}

/**
 * A request comes into a row that another one has left.
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} h
 */
export function drawEntry(pen, x, y, h) {
  const middle = Math.floor(y + h / 2) + 0.5;
  const look = { stroke: pen.p.blue, width: h >= 5 ? 1.25 : 0.5, arrow: h >= 5 };
  pen.line(x - (h >= 5 ? 7 : 4), middle, x - 1, middle, look);
}

/**
 * A text ends: ■ with EOS, │ with its budget, × before either.
 * @param {Pen} pen
 * @param {string} kind
 * @param {number} x
 * @param {number} y
 * @param {number} h
 */
export function drawEnd(pen, kind, x, y, h) {
  const { p } = pen;
  const size = Math.min(h, 6);
  const top = y + (h - size) / 2;
  if (kind === "eos") pen.rect(x + 1, top, size, size, { fill: p.ink });
  else if (kind === "budget") pen.rect(x + 1, y, 1.5, h, { fill: p.ink });
  else
    for (const [from, to] of [
      [top, top + size],
      [top + size, top],
    ])
      pen.line(x + 2, from, x + 2 + size, to, { stroke: p.ink, width: 1.25 });
}

/**
 * A sign that stands out from what lies under it.
 * @param {Pen} pen
 * @param {string} sign
 * @param {number} x
 * @param {number} y
 * @param {string} fill
 */
export function drawSign(pen, sign, x, y, fill) {
  pen.rect(x - 5.5, y - 5.5, 11, 11, { fill: pen.p.panel, radius: 3 });
  pen.text(sign, x, y + 0.5, { size: 11, weight: 700, fill, align: "center" });
}
