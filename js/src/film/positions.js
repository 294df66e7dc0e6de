// Positions: whether the position id of a token is its index. A log may lack it: then it is -1.

/**
 * Whether a position is known not to be the token's index.
 * @param {{ position: number, index: number }} at
 */
export function driftsAway({ position, index }) {
  return position >= 0 && position !== index;
}
