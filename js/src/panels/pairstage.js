// PairStage: the batches of two runs as one panel. The rows of a request stand one above the other
// on one axis, and only what differs between them is in colour.

import { greyed } from "../draw/palette.js";
import { Kept } from "../draw/text.js";
import { counted } from "../draw/words.js";
import { absence, mostLines, pairsAt } from "../film/pairing.js";
import { drawBranch, drawCompaction } from "./branch.js";
import { capacityHit, drawCapacity } from "./capacity.js";
import { drawCuts } from "./cut.js";
import { FramePainter } from "./frame.js";
import { LanePainter } from "./lanes.js";
import { AXIS, GUTTER, RIGHT, USUAL, ZOOMS } from "./layout.js";
import { MarkPainter } from "./marks.js";
import { differingBoxes, sameGain } from "./pairboxes.js";
import { MOST_OPEN, PairLayout } from "./pairlayout.js";
import { pairTable } from "./pairtable.js";
import { slotHint } from "./slotwords.js";

/** @import { Pair, Pen, View } from "../types.d.ts" */

export class PairStage {
  static id = "stage";

  /** @param {View[]} views of both runs */
  constructor(views) {
    this.views = views;
    this.pair = /** @type {Pair} */ (views[0].pair);
    /** The run whose row was pointed at last. */
    this.run = 0;
    /** @type {Kept<PairLayout[]>} */
    this._layouts = new Kept(5);
  }

  _places() {
    const { turn, zoom, pan, tall, dense } = this.views[0];
    const places = this.views.map(({ step, row }) => `${step}/${row}`);
    return [...places, turn, zoom, pan, tall, dense, this.pair.comparison.byTokens].join();
  }

  key() {
    const lit = this.views.map(({ progress, hover }) => [progress, hover?.row, hover?.slot]);
    return [this._places(), ...lit.flat()].join();
  }

  title() {
    const requests = counted(this.pairs.length, "request");
    const differs = this.pair.comparison.lanes ? "" : "; what differs is in colour";
    return `Both batches, ${requests}: tokens, position ids, K/V${differs}`;
  }

  heading() {
    const differs = this.pair.comparison.lanes ? "" : " · what differs is in colour";
    return `Both batches · ${counted(this.pairs.length, "request")}${differs}`;
  }

  get pairs() {
    return pairsAt(
      this.views.map(({ film }) => film),
      this.views.map(({ step }) => step),
    );
  }

  empty() {
    return this.pairs.length === 0;
  }

  /** @param {number} width */
  _at(width) {
    this._width = width;
    return this._layouts.get(`${this._places()},${width}`, () =>
      this.views.map((view) => new PairLayout(view, width)),
    );
  }

  /** @param {number} width */
  height(width) {
    const last = this._at(width)[1];
    return last.bottom + last.strip.height + 4;
  }

  /**
   * Everything in grey, and over it, in the colours of its own, what differs.
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    const both = this._at(width);
    const grey = greyed(pen.p);
    const frames = both.map((at) => new FramePainter(pen, at));
    pen.inColours(grey, () => {
      frames.forEach((frame) => frame.backdrop());
      frames[0].axis();
    });
    both.forEach((at, run) => {
      const marks = new MarkPainter(pen, at);
      const slides = marks.slides(1 - (at.view.progress ?? 1));
      pen.inColours(grey, () => this._rows(pen, at, marks, slides));
      pen.clipTo(differingBoxes(both, run, slides).map(wholePixels), () => {
        pen.rect(0, 0, width, at.bottom, { fill: pen.p.panel });
        pen.inColours(grey, () => frames[run].backdrop());
        this._rows(pen, at, marks, slides);
      });
      this._labels(pen, both, run, frames[run], grey);
      marks.verdicts();
      drawCapacity(pen, at);
    });
  }

  /**
   * @param {Pen} pen
   * @param {PairLayout} at
   * @param {MarkPainter} marks
   * @param {number[]} slides
   */
  _rows(pen, at, marks, slides) {
    const across = at.right - GUTTER + RIGHT / 2;
    pen.clip(GUTTER - 1, at.top, across, at.bottom - at.top, () =>
      new LanePainter(pen, at).paint(slides, marks.moved),
    );
    at.rows.forEach((row, number) => {
      marks.motion(row, number);
      drawCompaction(pen, at, number);
      marks.rejection(row, number);
    });
    drawCuts(pen, at);
    drawBranch(pen, at);
    if (at.signs) marks.begin(at.number === 0);
  }

  /**
   * @param {Pen} pen
   * @param {PairLayout[]} both
   * @param {number} run
   * @param {FramePainter} frame
   * @param {import("../types.d.ts").Palette} grey
   */
  _labels(pen, both, run, frame, grey) {
    const at = both[run];
    at.rows.forEach((row, number) => {
      const same = sameGain(both, row.request);
      pen.inColours(same ? { ...grey, ink: pen.p.ink } : pen.p, () =>
        frame.label(row, number, at.name),
      );
    });
    for (const { request, y, height } of at.gaps) {
      const look = { size: Math.min(height - 3, 11), fill: pen.p.muted };
      const words = `request ${request}: ${absence(at.film, at.step, request)}`;
      pen.text(at.name, 12, y + height / 2, { ...look, weight: 650 });
      pen.text(words, GUTTER, y + height / 2, { ...look, max: at.room });
    }
  }

  // -- asked by the shell

  /** How many rows are open if all are, and px of all that is not rows. */
  get openRows() {
    const most = mostLines(this.pair.comparison);
    return this.views[0].dense || most > MOST_OPEN ? 2 : most;
  }

  /** @param {number} width */
  around(width) {
    const [first, last] = this._at(width);
    const open = this.openRows * first.openHeight;
    return (
      AXIS +
      (last.bottom - AXIS - open) +
      last.strip.height +
      4 +
      first.arrows +
      first.states * this.openRows
    );
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    const both = this._at(width);
    for (const [run, at] of both.entries()) {
      const found = at.rowAt(y) < 0 ? capacityHit(at, x, y) : this._hitRow(at, x, y);
      if (!found) continue;
      this.run = run;
      return { ...found, hint: found.hint && `${at.name}: ${found.hint}` };
    }
    return null;
  }

  /**
   * @param {PairLayout} at
   * @param {number} x
   * @param {number} y
   */
  _hitRow(at, x, y) {
    const row = at.rowAt(y);
    if (x > at.right) return null;
    const words = at.stage.words_of?.[row] ?? `request ${at.rows[row].request}`;
    if (x < GUTTER) return { row, slot: null, index: null, hint: `row ${row}: ${words}` };
    const slot = at.slotAt(row, x);
    const cell = at.film.cell(at.step, "tokens", row, slot);
    if (!cell) return null;
    const index = cell.index < 0 ? null : cell.index;
    return { row, slot, index, hint: slotHint(at.view, row, slot, cell) };
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  click(x, y, width) {
    for (const at of this._at(width)) {
      const row = at.rowAt(y);
      const share = row < 0 ? capacityHit(at, x, y) : null;
      if (row >= 0 || share?.row != null) at.view.pick(share?.row ?? row);
    }
  }

  /** @param {number} direction */
  zoomBy(direction) {
    const automatic = this._width ? this._at(this._width)[0].cell : USUAL;
    const now = this.views[0].zoom ?? ZOOMS.findLastIndex((each) => each <= automatic);
    const zoom = Math.min(Math.max(now + direction, 0), ZOOMS.length - 1);
    for (const view of this.views) view.zoom = zoom;
  }

  /** @param {number} slots */
  panBy(slots) {
    const at = this._width ? this._at(this._width)[0] : null;
    const most = at ? at.last - at.count : 0;
    const pan = Math.min(Math.max((this.views[0].pan ?? 0) - slots, 0), most);
    for (const view of this.views) view.pan = pan;
  }

  reset() {
    for (const view of this.views) Object.assign(view, { zoom: null, pan: 0 });
  }

  describe() {
    const [first] = this.views;
    const words = this.views.map(({ film, step, row }, run) => {
      const own = film.stage(step).words_of?.[row];
      return `${this.pair.names[run]}, row ${row}: ${own ?? film.stage(step).words}.`;
    });
    const by = first.turn > 0.5 ? "positions" : "slots";
    return `${counted(this.pairs.length, "request")} of both runs by ${by}. ${words.join(" ")}`;
  }

  table() {
    return pairTable(this.views, this.pairs);
  }
}

/** So that no edge is smoothed. @param {number[]} box */
function wholePixels([x, y, w, h]) {
  const [left, top] = [Math.floor(x), Math.floor(y)];
  return [left, top, Math.ceil(x + w) - left, Math.ceil(y + h) - top];
}
