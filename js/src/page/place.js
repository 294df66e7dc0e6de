// Place: what is pointed at, without what is said of it.

/** @import { Hit, Place } from "../types.d.ts" */

/**
 * @param {Hit} hit
 * @returns {Place}
 */
export function placeOf({ row, slot, index, draft }) {
  return draft === undefined ? { row, slot, index } : { row, slot, index, draft };
}
