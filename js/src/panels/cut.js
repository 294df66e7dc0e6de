// Cut: where the verification of a row stops, as a bracket that closes behind its last verified
// draft. What lies behind it is drawn hollow.

import { leftOut, shareWords } from "../film/selection.js";
import { GUTTER } from "./layout.js";

/** @import { Pen } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

export const HOLLOW = [1.5, 3]; // px: the outline of what is not verified

/**
 * A closing bracket whose back is at x.
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} h
 * @param {number} [lip]
 */
export function drawCut(pen, x, y, h, lip = 4) {
  const look = { stroke: pen.p.ink, width: 2 };
  pen.line(x, y, x, y + h, look);
  for (const end of [y + 1, y + h - 1]) pen.line(x - lip, end, x, end, look);
}

/**
 * In the batch, between the phases that draft and accept: a bracket in each row that leaves drafts
 * out, and under an open row how many it verifies.
 * @param {Pen} pen
 * @param {StageLayout} at
 */
export function drawCuts(pen, at) {
  const phase = at.film.phase(at.step);
  if (phase !== 1 && phase !== 2) return;
  at.rows.forEach((row, number) => {
    if (!leftOut(row)) return;
    const { tokens, notes } = at.lanes[number];
    const x = at.x(number, at.begin(row) + 1 + row.verified);
    if (x < GUTTER || x > at.right) return;
    drawCut(pen, x, tokens.y - 2, tokens.h + 4, Math.min(4, at.cell / 3));
    if (!notes || !at.texts) return;
    const left = Math.max(at.x(number, at.begin(row) + 1) + 2, GUTTER);
    const look = { size: 10, fill: pen.p.muted };
    pen.text(shareWords(row, phase === 2), left, notes.y + notes.h / 2, look);
  });
}
