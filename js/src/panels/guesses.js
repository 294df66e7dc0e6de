// Guesses: K/V of a draft head that was not made from the target's features, over the bar of its
// K/V. Until the next round reads the tokens again, it is provisional.

import { guessesOf } from "../film/head.js";
import { barLooks } from "./lanelooks.js";
import { GUTTER } from "./layout.js";

/** @import { Pen } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

/**
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {number} number
 * @param {number} slide
 */
export function drawGuesses(pen, at, number, slide) {
  const { y, h } = at.lanes[number].draft;
  const looks = barLooks(pen.p, pen.p.draft, h);
  for (const [slot, stop, source] of guessesOf(at.film, at.step, number)) {
    const x = at.x(number, slot) + slide;
    const w = (stop - slot) * at.cell;
    if (x + w < GUTTER || x > at.right) continue;
    // The look has no fill, and what lies under it has one.
    pen.rect(x, y - 0.5, w, h + 1, { fill: pen.p.panel });
    pen.rect(x + 0.5, y, w - 1, h, looks[source]);
  }
}
