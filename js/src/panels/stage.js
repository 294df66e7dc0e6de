// Stage: the batch after one phase. For each row four lanes in the columns of the cache: tokens,
// position ids, and the K/V of target and draft.

import { Kept } from "../draw/text.js";
import { counted } from "../draw/words.js";
import { drafterName, keepsNothing, sourceWords } from "../film/head.js";
import { stateLanes, stateWords } from "../film/states.js";
import { capacityHit, capacityWords, drawCapacity } from "./capacity.js";
import { drawCuts } from "./cut.js";
import { FramePainter } from "./frame.js";
import { LanePainter } from "./lanes.js";
import { AXIS, GUTTER, READING, RIGHT, StageLayout, USUAL, ZOOMS } from "./layout.js";
import { MarkPainter } from "./marks.js";
import { drawBranch, drawCompaction } from "./branch.js";
import { drawReading } from "./reading.js";
import { slotHint, slotKv, slotState } from "./slotwords.js";

/** @import { Pen, View } from "../types.d.ts" */

const LISTED = 400; // slots of a table, the last ones

export class Stage {
  static id = "stage";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {Kept<StageLayout>} */
    this._layouts = new Kept(5);
  }

  key() {
    const { step, row, zoom, pan, tall, turn, progress, hover } = this.view;
    return [
      step,
      row,
      zoom,
      pan,
      tall,
      turn,
      progress,
      hover?.row,
      hover?.slot,
      hover?.draft,
    ].join();
  }

  title() {
    const { film, step } = this.view;
    const rows = counted(film.rows(step).length, "row");
    const slots = counted(film.stage(step).width, "slot");
    const models = keepsNothing(film) ? "the target" : `target and ${drafterName(film)}`;
    return `Batch, ${rows} × ${slots} · tokens, position ids, K/V of ${models}`;
  }

  heading() {
    const { film, step } = this.view;
    return `Batch · ${counted(film.rows(step).length, "row")} × ${counted(film.stage(step).width, "slot")}`;
  }

  empty() {
    return this.view.film.rows(this.view.step).length === 0;
  }
  /** @param {number} width */
  height(width) {
    return this._layout(width).height;
  }

  /** @param {number} width */
  _layout(width) {
    const { step, row, zoom, pan, tall, turn } = this.view;
    this._width = width;
    return this._layouts.get(
      [step, row, zoom, pan, tall, turn, width].join(),
      () => new StageLayout(this.view, width),
    );
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    const at = this._layout(width);
    const frame = new FramePainter(pen, at);
    const marks = new MarkPainter(pen, at);
    const slides = marks.slides(1 - (this.view.progress ?? 1));
    frame.paint();
    // Cells that slide in from outside of the window must not cover labels.
    pen.clip(GUTTER - 1, at.top, at.right - GUTTER + RIGHT / 2, at.bottom - at.top, () =>
      new LanePainter(pen, at).paint(slides, marks.moved),
    );
    at.rows.forEach((row, number) => {
      frame.label(row, number);
      marks.motion(row, number);
      drawCompaction(pen, at, number);
      marks.rejection(row, number);
    });
    drawCuts(pen, at);
    drawBranch(pen, at);
    marks.paint();
    drawCapacity(pen, at);
    drawReading(pen, at, this.view.row);
  }

  // -- asked by the shell

  /** How many rows of the run are open, and px of all that is not rows. */
  get openRows() {
    return this.view.film.mostRows > 8 ? 1 : this.view.film.mostRows;
  }
  /** @param {number} width */
  around(width) {
    const at = this._layout(width);
    const { film } = this.view;
    const compact = film.mostRows > 24 ? 13 : 25;
    const folded = film.mostRows > 8 ? (film.mostRows - 1) * compact : 0;
    return AXIS + READING + at.strip.height + (at.arrows + at.states) * this.openRows + folded;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    const at = this._layout(width);
    const row = at.rowAt(y);
    if (row < 0) return capacityHit(at, x, y);
    const { y: top, height } = at.lanes[row];
    const band = { top, bottom: top + height };
    if (x > at.right) return null;
    if (x < GUTTER) {
      const words = at.stage.words_of?.[row] ?? `request ${at.rows[row].request}`;
      return { row, slot: null, index: null, hint: `row ${row}: ${words}`, ...band };
    }
    const slot = at.slotAt(row, x);
    const cell = at.film.cell(at.step, "tokens", row, slot);
    if (!cell) return null;
    const index = cell.index < 0 ? null : cell.index;
    return { row, slot, index, hint: slotHint(this.view, row, slot, cell), ...band };
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  click(x, y, width) {
    const at = this._layout(width);
    const row = at.rowAt(y);
    const share = row < 0 ? capacityHit(at, x, y) : null;
    if (row >= 0 || share?.row != null) this.view.pick(share?.row ?? row);
  }

  /** @param {number} direction */
  zoomBy(direction) {
    const automatic = this._width ? this._layout(this._width).cell : USUAL;
    const now = this.view.zoom ?? ZOOMS.findLastIndex((each) => each <= automatic);
    this.view.zoom = Math.min(Math.max(now + direction, 0), ZOOMS.length - 1);
  }

  /** @param {number} slots */
  panBy(slots) {
    const at = this._width ? this._layout(this._width) : null;
    const most = at ? at.last - at.count : 0;
    this.view.pan = Math.min(Math.max((this.view.pan ?? 0) - slots, 0), most);
  }

  reset() {
    Object.assign(this.view, { zoom: null, pan: 0 });
  }

  describe() {
    const { film, step, row } = this.view;
    const rows = film.rows(step);
    const own = rows[row];
    if (!own) return "No row in this round.";
    const stage = film.stage(step);
    const lengths = `${Math.min(...stage.lengths)} to ${Math.max(...stage.lengths)}`;
    return [
      `${rows.length} rows of ${lengths} committed tokens in ${stage.width} slots.`,
      `Row ${row}: request ${own.request}, ${stage.lengths[row]} tokens.`,
      (stage.words_of?.[row] ?? "") + capacityWords(this.view),
    ].join(" ");
  }

  table() {
    const { film, step, row } = this.view;
    const end = film.lane(step, "tokens", row).at(-1)?.[1] ?? 0;
    const width = Math.max(film.stage(step).width, end);
    const reads = film.json.head !== undefined && !keepsNothing(film);
    const states = stateLanes(film) > 0;
    /** @param {number} value */
    const number = (value) => (value < 0 ? "" : value);
    const rows = [];
    for (let slot = Math.max(0, width - LISTED); slot < width; slot++) {
      const cell = film.cell(step, "tokens", row, slot);
      if (!cell) continue;
      rows.push([
        slot,
        film.text(cell.token),
        slotState(this.view, row, cell),
        number(cell.index),
        number(cell.position),
        slotKv(this.view, "target", row, slot, cell),
        ...(keepsNothing(film) ? [] : [slotKv(this.view, "draft", row, slot, cell)]),
        ...(reads ? [sourceWords(film, step, row, slot)] : []),
        ...(states ? [stateWords(film, step, row, slot).join("; ")] : []),
      ]);
    }
    const head = ["slot", "token", "state", "index", "position", "target K/V"];
    if (!keepsNothing(film)) head.push(`${drafterName(film)} K/V`);
    if (reads) head.push(`what the ${drafterName(film)} read`);
    if (states) head.push("states");
    return { caption: `Row ${row}, slot by slot`, head, rows };
  }
}
