// Windows: what queries see in layers that attend to the last tokens alone. Python judged it.

import { joinedRanges } from "./ranges.js";
import { layerWords } from "./states.js";

/** @import { FeedRun, Film, Range, Sight, Windowed, Windows } from "../types.d.ts" */

/**
 * Where the window of a query begins, and where it should: at slot 0 where there is none.
 * @param {Windows | null} windows
 * @param {number} n
 * @returns {Range}
 */
export function windowOf(windows, n) {
  const start = windows?.starts[n] ?? 0;
  return [start, windows?.due?.[n] ?? start];
}

/**
 * What a slot that a query sees is in layers with a window.
 * @param {Sight} whole
 * @param {number} slot
 * @param {Range} window
 * @returns {Sight}
 */
export function narrowed(whole, slot, [start, due]) {
  if (slot < start) return slot < due ? "beyond" : "hole";
  return slot < due ? "leak" : whole;
}

/**
 * The layers with a window of the model that these runs were read by, and what is wrong there.
 * @param {Film} film
 * @param {number} step
 * @param {FeedRun[]} fed
 * @returns {Windowed | null}
 */
export function windowed(film, step, fed) {
  const { meta } = film.json;
  const model = fed[0][0] ? "draft" : "target";
  const { windows, feeds } = film.stage(step);
  const own = fed.flatMap((run) => windows?.[feeds.indexOf(run)] ?? []);
  const [type, width] = Object.entries(meta.windows?.[model] ?? {})[0] ?? [];
  if (!own.length || type === undefined || width === undefined) return null;
  /** @type {Range[]} */
  const leaks = [];
  /** @type {Range[]} */
  const holes = [];
  for (const { starts, due } of own)
    due?.forEach((right, n) => {
      if (starts[n] < right) leaks.push([starts[n], right]);
      if (starts[n] > right) holes.push([right, starts[n]]);
    });
  const layers = layerWords(meta.layers?.[model], (each) => each === type);
  const chunks = type === "chunked_attention";
  return { width, layers, chunks, leaks: joinedRanges(leaks), holes: joinedRanges(holes) };
}
