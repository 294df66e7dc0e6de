// Ranges: blocks of slots, as [start, stop], which queries see or should see.

/** @import { Range } from "../types.d.ts" */

/**
 * Ranges in order, joined where they touch or overlap.
 * @param {Range[]} ranges
 * @returns {Range[]}
 */
export function joinedRanges(ranges) {
  /** @type {Range[]} */
  const joined = [];
  for (const [start, stop] of [...ranges].sort((one, other) => one[0] - other[0])) {
    const last = joined.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], stop);
    else joined.push([start, stop]);
  }
  return joined;
}
