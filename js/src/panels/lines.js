// Lines: a drawn table of one line a row, for panels that say something of every row of the batch.

import { PAD } from "../draw/words.js";

/** @import { Pen, TextLook } from "../types.d.ts" */

const TALLEST = 21;
const LOWEST = 13;
const USUAL_ROOM = 340; // px for all lines
const HEAD = 20;

/** @typedef {{ head: string, x: number, right?: boolean }} Column x: share of the width */

/**
 * px of a line where `count` of them stand under one head.
 * @param {number} count
 * @param {number} [room]
 */
export function lineHeight(count, room = USUAL_ROOM) {
  return Math.min(Math.max(Math.floor(room / Math.max(count, 1)), LOWEST), TALLEST);
}

export class Lines {
  /**
   * @param {number} width
   * @param {number} count
   */
  constructor(width, count) {
    this.width = width;
    this.count = count;
    this.line = lineHeight(count);
    this.height = HEAD + this.line * count + 4;
  }

  /** @param {number} share of the width between the margins */
  x(share) {
    return PAD + share * (this.width - 2 * PAD);
  }

  /** @param {number} row */
  middle(row) {
    return HEAD + this.line * (row + 0.5);
  }

  /** @param {number} y */
  rowAt(y) {
    const row = Math.floor((y - HEAD) / this.line);
    return row >= 0 && row < this.count ? row : -1;
  }

  /**
   * The heads of the columns, and the band of the chosen row.
   * @param {Pen} pen
   * @param {Column[]} columns
   * @param {number} chosen
   */
  frame(pen, columns, chosen) {
    for (const { head, x, right } of columns)
      pen.text(head, this.x(x), HEAD / 2, {
        size: 11,
        fill: pen.p.muted,
        align: right ? "right" : "left",
      });
    if (chosen >= 0 && chosen < this.count && this.count > 1)
      pen.rect(4, HEAD + this.line * chosen, this.width - 8, this.line, {
        fill: pen.p.blueSoft,
        radius: 4,
      });
  }

  /**
   * @param {Pen} pen
   * @param {number} row
   * @param {Column} column
   * @param {string} words
   * @param {TextLook} [look]
   */
  cell(pen, row, { x, right }, words, look = {}) {
    const size = this.line < 16 ? 10 : 11.5;
    const align = right ? "right" : "left";
    pen.text(words, this.x(x), this.middle(row), { size, align, ...look });
  }
}
