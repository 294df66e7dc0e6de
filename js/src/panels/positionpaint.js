// PositionPaint: the position id under a token of the batch.

import { SIGNS } from "./lanelooks.js";

/** @import { Band, Cell, Pen } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

/**
 * The position id; where it is not the token's index, in red with the drift, if that may be said.
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {Band} band
 * @param {Cell} cell
 * @param {number} x
 */
export function drawPosition(pen, at, band, cell, x) {
  const { p } = pen;
  const y = band.y + band.h / 2;
  const drift = cell.position - cell.index;
  if (drift && cell.kind !== "stale" && at.film.checked) {
    const look = {
      size: at.large ? 10 : 9,
      fill: p.red,
      weight: 700,
      align: "center",
      max: at.cell - 3,
    };
    const middle = x + at.cell / 2;
    const by = `${drift > 0 ? "+" : "−"}${Math.abs(drift)}`;
    const apart = at.stacked ? 4.5 : 0;
    pen.rect(x + 1, band.y, at.cell - 2, band.h, {
      fill: p.redSoft,
      radius: 2,
    });
    if (apart) pen.text(by, middle, y + apart, { ...look, weight: 400 });
    return pen.text(apart ? `${cell.position}` : `${cell.position}${by}`, middle, y - apart, look);
  }
  // The sign of a draft that was not reached would look like a minus before its position.
  const plain = cell.kind === "held" || cell.kind === "unreached_now";
  const sign = plain ? "" : (SIGNS[cell.kind] ?? "");
  const look = sign ? { fill: p.ink, weight: 650 } : { fill: p.muted };
  const size = at.large ? 10 : 9;
  pen.text(`${sign}${cell.position}`, x + at.cell / 2, y, {
    size,
    align: "center",
    max: at.cell - 1,
    ...look,
  });
}
