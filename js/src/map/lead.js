// Lead: which of two runs has more tokens, and when. Knows no pixels.

/** @import { Axis } from "./axis.js" */
/** @import { Tally } from "../film/tally.js" */

/**
 * Spans of the axis with how many tokens the first run is ahead of the second one. A run has the
 * tokens of a round once the round is over.
 * @param {Axis} axis
 * @param {Tally[]} tallies
 */
export function leads(axis, tallies) {
  const edges = new Set([0, axis.end]);
  for (const tally of tallies)
    for (let round = 0; round <= tally.rounds; round++) edges.add(axis.start(tally, round));
  const sorted = [...edges].sort((a, b) => a - b);
  return sorted
    .slice(1)
    .map((to, n) => ({ from: sorted[n], to, ahead: aheadAt(axis, tallies, sorted[n]) }));
}

/**
 * By how many tokens the first run is ahead of the second one at a place of the axis.
 * @param {Axis} axis
 * @param {Tally[]} tallies
 * @param {number} value
 */
export function aheadAt(axis, tallies, value) {
  const [first, second] = tallies.map((tally) =>
    tally.tokensBefore(Math.max(axis.roundAt(tally, value), 0)),
  );
  return first - second;
}
