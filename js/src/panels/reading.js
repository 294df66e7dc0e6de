// Reading: the chosen row's last tokens as running text, so that narrow cells need not be read.

import { LONGEST } from "../draw/words.js";
import { branches, draftAt, lineOf, slotsOf } from "../film/tree.js";
import { cellLooks } from "./lanelooks.js";
import { GUTTER, RIGHT } from "./layout.js";

/** @import { Cell, Pen } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

// Kinds of cells that are no text of the row.
const UNREAD = new Set(["stale", "rejected_now", "discarded_now", "unreached_now", "unverified"]);

/**
 * px at either side of a token's text: one of this round stands in a box.
 * @param {Cell} cell
 */
const padding = ({ kind }) => (kind === "held" ? 1 : 4);

/**
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {number} number
 */
export function drawReading(pen, at, number) {
  const { p } = pen;
  const y = at.readingTop + 13;
  const looks = cellLooks(p);
  const { words, more } = lastWords(pen, at, number);
  pen.text(`row ${number} reads`, 12, y, { size: 10.5, fill: p.muted });
  let x = more ? at.width - RIGHT - words.reduce((sum, { w }) => sum + w, 0) : GUTTER;
  if (more) pen.text("…", x - 4, y, { size: 12, fill: p.muted, align: "right" });
  for (const { cell, text, w } of words) {
    const look = looks[cell.kind === "held" ? cell.origin || "p" : cell.kind];
    if (cell.kind !== "held")
      pen.rect(x, y - 10, w - 1, 20, {
        fill: look.fill,
        stroke: look.stroke,
        dash: look.dash,
        radius: 3,
      });
    const fill = cell.origin === "p" ? p.muted : p.ink;
    pen.text(text, x + padding(cell), y, { size: 12, mono: true, fill });
    x += w;
  }
}

/**
 * words: {cell, text, w: px} of the tokens that find room, in order; more: there are others before
 * them.
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {number} number
 */
function lastWords(pen, at, number) {
  const look = { size: 12, mono: true };
  const words = [];
  let room = at.width - RIGHT - GUTTER - 14;
  for (const cell of tokensFromTheEnd(at, number)) {
    const text = pen.cut(at.film.text(cell.token), LONGEST, look);
    const w = pen.measure(text, look) + 2 * padding(cell) + 1;
    if (w > room) return { words: words.reverse(), more: true };
    room -= w;
    words.push({ cell, text, w });
  }
  return { words: words.reverse(), more: false };
}

/**
 * @param {StageLayout} at
 * @param {number} number
 */
function* tokensFromTheEnd(at, number) {
  const wrong = at.film.wrongEnds(at.step).has(number);
  const unread = offBranch(at, number);
  for (const run of [...at.film.lane(at.step, "tokens", number)].reverse()) {
    for (let slot = run[1] - 1; slot >= run[0]; slot--) {
      const cell = at.film.cellOf(run, slot);
      if (wrong && cell.kind === "bonus_now") cell.kind = "wrong_now";
      if (cell.token >= 0 && !UNREAD.has(cell.kind) && !unread.has(slot)) yield cell;
    }
  }
}

/**
 * The slots of a tree's drafts that are no text of one branch: all but those of the branch that is
 * pointed at, as long as none is accepted.
 * @param {StageLayout} at
 * @param {number} number
 */
function offBranch({ film, step, rows, view }, number) {
  const entry = rows[number];
  if (!entry || !branches(entry) || film.judged(step)) return new Set();
  const slots = slotsOf(film, step, number);
  const draft = draftAt(film, step, number, view.hover);
  const line = draft < 0 ? [] : lineOf(entry, draft);
  return new Set(slots.filter((_, j) => !line.includes(j)));
}
