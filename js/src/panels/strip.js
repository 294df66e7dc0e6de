// Strip: how the cells of the round's capacity lie under the batch, in px. Draws nothing.

export const LINE = 20; // px from one line of cells to the next
export const ABOVE = 8;
const WIDEST = 30;
const NARROWEST = 15; // px of a cell

/**
 * How many cells stand in a line, px of a cell, and px of all lines: 0 without a capacity.
 * @param {number | undefined} capacity
 * @param {number} room
 */
export function stripIn(capacity, room) {
  if (capacity === undefined) return { cell: 0, across: 1, height: 0 };
  const cell = Math.min(Math.max(room / Math.max(capacity, 1), NARROWEST), WIDEST);
  const across = Math.max(Math.floor(room / cell + 1e-6), 1);
  const lines = Math.max(Math.ceil(capacity / across), 1);
  return { cell, across, height: ABOVE + lines * LINE };
}
