// Fit: how tall the rows of the batch and the map may be, so that a run is followed without
// scrolling. The rest of the view has a height of its own.

export const ROW = { least: 46, most: 68 }; // px of an open row
const LOW_BELOW = 52; // px of a row from which on the whole map is worth its room

/**
 * px of the place that scrolls the view: the window, or the notebook around it.
 * @param {Element} root
 */
export function frameHeight(root) {
  for (let at = root.parentElement; at; at = at.parentElement) {
    const { overflowY } = getComputedStyle(at);
    const scrolls = overflowY === "auto" || overflowY === "scroll";
    // A box around one output scrolls sideways only; it is as tall as what it holds.
    if (scrolls && at.clientHeight < at.scrollHeight && at !== document.body)
      return Math.min(at.clientHeight, window.innerHeight);
  }
  return window.innerHeight;
}

/**
 * low: whether the map gives up its strips and words; tight: whether the legend gives up its place;
 * row: px of an open row; fits: whether nothing has to be scrolled. legend: px that are saved once it
 * gives up its place.
 * @param {{ frame: number, rest: number, legend: number, map: number, lowMap: number, rows: number,
 *   low: boolean | null }} at rest: px of all but rows and map; low: what the reader chose
 */
export function fit({ frame, rest, legend, map, lowMap, rows, low }) {
  /** @param {boolean} asLow */
  const row = (asLow) => (frame - rest - (asLow ? lowMap : map)) / Math.max(rows, 1);
  const chosen = low ?? row(false) < LOW_BELOW;
  const tight = row(chosen) < ROW.least;
  const most = row(chosen) + (tight ? legend / Math.max(rows, 1) : 0);
  return {
    low: chosen,
    tight,
    fits: most >= ROW.least,
    row: Math.floor(Math.min(Math.max(most, ROW.least), ROW.most)),
  };
}

/**
 * How many lines the longest of some sentences takes; only the longest few are measured.
 * @param {string[]} sentences
 * @param {(sentence: string) => number} linesOf
 */
export function mostLines(sentences, linesOf) {
  const longest = [...new Set(sentences)].sort((a, b) => b.length - a.length).slice(0, 6);
  return Math.max(1, ...longest.map(linesOf));
}
