// Guesses: K/V of a draft head that was not made from the target's features, over the bar of its
// K/V. Until the next round reads the tokens again, it is provisional.

import { guessesOf } from "../film/head.js";
import { GUTTER } from "./layout.js";

/** @import { Pen, Source } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

// px of the dashes that stand in place of a full bar
/** @type {Partial<Record<Source, number[]>>} */
const DASHES = { own: [5, 3], mask: [1.5, 3], block: [1.5, 3] };

/**
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {number} number
 * @param {number} slide
 */
export function drawGuesses(pen, at, number, slide) {
  const { y, h } = at.lanes[number].draft;
  for (const [slot, stop, source] of guessesOf(at.film, at.step, number)) {
    const x = at.x(number, slot) + slide;
    const w = at.x(number, stop) + slide - x;
    if (x + w < GUTTER || x > at.right) continue;
    // A full bar lies under it.
    pen.rect(x, y - 0.5, w, h + 1, { fill: pen.p.panel });
    drawGuess(pen, source, x, y + h / 2, w, h);
  }
}

/**
 * A broken bar; y: its middle.
 * @param {Pen} pen
 * @param {Source} source
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
export function drawGuess(pen, source, x, y, w, h) {
  pen.line(x + 1.5, y, x + w - 1, y, { stroke: pen.p.draft, width: h, dash: DASHES[source] });
}
