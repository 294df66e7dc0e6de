// Capacity: under the rows of the batch, what the round's capacity is spent on: a cell for each
// draft that the round may verify, with the number and the colour of its row. Only runs whose
// selector spends a capacity have it.

import { counted } from "../draw/words.js";
import { spending } from "../film/selection.js";
import { depthOf, isAccepted } from "../film/tree.js";
import { GUTTER } from "./layout.js";
import { ABOVE, LINE } from "./strip.js";

/** @import { Palette, Pen, View } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

const TALL = 16; // px of a cell
const SIGNS_FROM = 26; // px of a cell from which there is room for a sign beside the row
const HUES = 6;

/**
 * A row's colour in the strip, which its label has too.
 * @param {Palette} p
 * @param {number} row
 */
function hue(p, row) {
  return p[`row${row % HUES}`];
}

/**
 * @param {Pen} pen
 * @param {StageLayout} at
 */
export function drawCapacity(pen, at) {
  const spent = spending(at.film, at.step);
  if (!spent) return;
  const top = at.bottom + ABOVE;
  const y = top + TALL / 2;
  const look = { size: 10.5, fill: pen.p.muted };
  const count = spent.known ? `${spent.drafts.length} of ${spent.capacity}` : `${spent.capacity}`;
  const needed = pen.measure("capacity", look) + 4 + pen.measure(count, look);
  look.size *= Math.min(1, (GUTTER - 8 - 12) / needed); // side by side, whatever the count
  pen.text("capacity", 12, y, look);
  pen.text(count, GUTTER - 8, y, { ...look, align: "right" });
  if (spent.drafts.length) rowHues(pen, at);
  const { cell, across } = at.strip;
  for (let n = 0; n < spent.capacity; n++) {
    const x = GUTTER + (n % across) * cell;
    const y = top + Math.floor(n / across) * LINE;
    const draft = spent.drafts[n];
    if (draft) drawShare(pen, at, draft, x, y, cell);
    else pen.rect(x + 1, y, cell - 2, TALL, { stroke: pen.p.faint, radius: 3 });
  }
}

/**
 * Beside each row's name, the colour that its cells in the strip have.
 * @param {Pen} pen
 * @param {StageLayout} at
 */
function rowHues(pen, at) {
  at.rows.forEach((row, number) => {
    const { tokens } = at.lanes[number];
    if (row.gained) pen.rect(5, tokens.y, 4, tokens.h, { fill: hue(pen.p, number), radius: 2 });
  });
}

/**
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {{ row: number, draft: number }} spent
 * @param {number} x
 * @param {number} y
 * @param {number} cell
 */
function drawShare(pen, at, { row, draft }, x, y, cell) {
  const { p } = pen;
  const own = row === at.view.row;
  const stroke = own ? p.blue : undefined;
  pen.rect(x + 1, y, cell - 2, TALL, { fill: hue(p, row), stroke, width: 1.5, radius: 3 });
  const sign = cell >= SIGNS_FROM && accepts(at, row, draft) ? "✓" : "";
  const look = { size: 10, weight: own ? 700 : 400, align: "center" };
  pen.text(`${row}${sign}`, x + cell / 2, y + TALL / 2, look);
}

/**
 * @param {StageLayout} at
 * @param {number} row
 * @param {number} draft
 */
function accepts(at, row, draft) {
  return at.film.judged(at.step) && isAccepted(at.rows[row], draft);
}

/**
 * What lies at a point of the strip; null beside it.
 * @param {StageLayout} at
 * @param {number} x
 * @param {number} y
 */
export function capacityHit(at, x, y) {
  const spent = spending(at.film, at.step);
  if (!spent || x < GUTTER) return null;
  const { cell, across } = at.strip;
  const line = Math.floor((y - at.bottom - ABOVE) / LINE);
  const column = Math.floor((x - GUTTER) / cell);
  const n = line * across + column;
  if (line < 0 || column >= across || n >= spent.capacity) return null;
  const place = `${n + 1} of the round's capacity of ${counted(spent.capacity, "draft")}`;
  const taken = spent.drafts[n];
  if (!taken) {
    const unused = spent.known ? "not used" : "not spent yet";
    return { row: null, slot: null, index: null, hint: `${place}: ${unused}` };
  }
  const { row, draft } = taken;
  const index = at.rows[row].length + depthOf(at.rows[row], draft) - 1;
  const accepted = accepts(at, row, draft) ? ", accepted" : "";
  return { row, slot: null, index, hint: `${place}: row ${row}, draft ${draft + 1}${accepted}` };
}

/**
 * The strip in words, behind those about a row; "" where there is none.
 * @param {View} view
 */
export function capacityWords({ film, step }) {
  const spent = spending(film, step);
  if (!spent) return "";
  const capacity = `. Capacity: ${counted(spent.capacity, "draft")}`;
  if (!spent.known) return `${capacity}, not spent yet.`;
  const shares = film
    .rows(step)
    .map(({ verified }, row) => `row ${row} gets ${verified}`)
    .join(", ");
  const unused = spent.capacity - spent.drafts.length;
  return `${capacity}; ${shares}; ${unused} not used.`;
}
