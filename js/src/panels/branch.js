// Branch: in the batch, which slots the draft that is pointed at follows, and how the drafts that
// were accepted of a tree move behind the row's pending token.

import { compacted, draftAt, lineOf, slotsOf } from "../film/tree.js";
import { GUTTER } from "./layout.js";

/** @import { Pen } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

/**
 * A frame around each slot whose draft the one that is pointed at follows.
 * @param {Pen} pen
 * @param {StageLayout} at
 */
export function drawBranch(pen, at) {
  const { film, step, view } = at;
  const row = view.hover?.row ?? -1;
  const entry = at.rows[row];
  const draft = entry && film.phase(step) ? draftAt(film, step, row, view.hover) : -1;
  if (draft < 0) return;
  const slots = slotsOf(film, step, row);
  const { tokens } = at.lanes[row];
  const begin = at.begin(entry);
  for (const slot of [begin, ...lineOf(entry, draft).map((each) => slots[each])]) {
    if (slot === null) continue;
    const x = at.x(row, slot);
    if (x < GUTTER || x + 1 > at.right) continue;
    const look = { stroke: pen.p.blue, width: 2, radius: 4 };
    pen.rect(x + 0.5, tokens.y - 1.5, Math.max(at.cell - 1, 2), tokens.h + 3, look);
  }
}

/**
 * In the phase that accepts: an arrow for each draft of a row that moves, from the slot where the
 * target has read it.
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {number} row
 */
export function drawCompaction(pen, at, row) {
  const { arrows } = at.lanes[row];
  if (!arrows || at.film.phaseName(at.step) !== "accept") return;
  const moves = [...compacted(at.film, at.step, row)];
  const look = { stroke: pen.p.green, width: 1.75 };
  const deep = arrows.h - 2;
  moves.forEach(([from, to], n) => {
    const [tail, head] = [at.x(row, from) + at.cell / 2, at.x(row, to) + at.cell / 2];
    if (Math.min(tail, head) < GUTTER || Math.max(tail, head) > at.right) return;
    // Neighbours that move together go at two depths, so that their arrows stay apart.
    const y = arrows.y + deep * (moves.length > 1 && n % 2 ? 0.55 : 1);
    const apart = Math.min(3, at.cell / 6);
    pen.line(tail + apart, arrows.y, tail + apart, y, look);
    pen.line(tail + apart, y, head - apart, y, look);
    pen.line(head - apart, y, head - apart, arrows.y - 1, { ...look, arrow: true });
  });
}
