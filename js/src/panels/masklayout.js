// MaskLayout: where the queries and slots of an attention mask lie.

import { fontOf, measureText } from "../draw/text.js";
import { PAD } from "../draw/words.js";

/** @import { MaskCells, MaskPart } from "../types.d.ts" */

export const MASK_CELL = 16;
export const MASK_WIDEST = 22;
export const MASK_READABLE = 6;
export const MASK_SMALLEST = 3;
export const MASK_TALLEST = 240; // px
export const MASK_TICKS = 20;
export const MASK_LINE = 18;
// px: numbers over slots, a line of words, width that has room for tokens
export const MASK_WIDE = 480;

// Where queries and slots lie, in px. Slots before and behind what the row's queries are about are
// folded into narrow blocks where they would make cells too small. parts: {first, stop, x, cell}
// from left to right; cell: px of a slot.
export class MaskLayout {
  /**
   * @param {MaskCells} cells
   * @param {number} width
   */
  constructor(cells, width) {
    this.cells = cells;
    this.width = width;
    this.wide = width >= MASK_WIDE;
    this.names =
      Math.max(
        measureText(cells.queries[0].name, fontOf({ size: 11.5, weight: 700 })),
        measureText(
          cells.queries[cells.queries.length - 1].name,
          fontOf({ size: 11.5, weight: 700 }),
        ),
        44,
      ) + 10;
    this.left = PAD + this.names + (this.wide ? 70 : 0) + (cells.drifts ? 66 : 42);
    this.line = Math.min(MASK_CELL, MASK_TALLEST / cells.queries.length);
    this.height = this.line * cells.queries.length;
    this.parts = this._parts(width - PAD - this.left);
    this.right = Math.max(...this.parts.map((part) => this.end(part)));
  }

  /** @param {MaskPart} part */
  end(part) {
    return part.x + (part.stop - part.first) * part.cell;
  }

  /**
   * @param {number} room
   * @returns {MaskPart[]}
   */
  _parts(room) {
    const { slots, queries } = this.cells;
    const least = this.width < 480 ? MASK_SMALLEST : MASK_READABLE;
    const cell = least + 3;
    const last = Math.min(slots, Math.max(...queries.map((query) => query.until)) + 1);
    const cut = queries.length * cell > room * 0.75 - 48;
    if (room / slots >= least || cut)
      return [
        {
          first: 0,
          stop: slots,
          x: this.left,
          cell: Math.min(room / slots, MASK_WIDEST),
          folded: false,
        },
      ];
    const beyond = (slots - last) * cell <= 40 ? 0 : 40;
    const stop = beyond ? last : slots;
    const before = Math.min(120, room / 4);
    const count = Math.floor((room - before - beyond - 8) / cell);
    const first = Math.max(stop - count, 0);
    const parts = first
      ? [{ first: 0, stop: first, x: this.left, cell: before / first, folded: true }]
      : [];
    parts.push({ first, stop, x: this.left + (first ? before + 8 : 0), cell, folded: false });
    const x = this.end(parts[parts.length - 1]) + 8;
    if (beyond)
      parts.push({
        first: stop,
        stop: slots,
        x,
        cell: (beyond - 8) / (slots - stop),
        folded: true,
      });
    return parts;
  }

  /** @param {number} slot */
  x(slot) {
    const part =
      this.parts.find((each) => slot >= each.first && slot < each.stop) ??
      this.parts[this.parts.length - 1];
    return part.x + (slot - part.first) * part.cell;
  }

  /** @param {number} x */
  slotAt(x) {
    const part = this.parts.find((each) => x >= each.x && x < this.end(each));
    return part ? Math.min(Math.floor((x - part.x) / part.cell) + part.first, part.stop - 1) : null;
  }
}
