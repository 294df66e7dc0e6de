// States: what layers keep that is no K/V, as Python marked it (specviz/views/stepper/states.py), and
// in words. Knows no pixels.

import { counted } from "../draw/words.js";
import { sumOf } from "./tally.js";

/** @import { Film, StateKind, StateMark } from "../types.d.ts" */

/** @type {Record<StateKind, string>} */
export const STATE_WORDS = {
  open: "state that the forward left after this token",
  kept: "state that the row goes on from",
  dropped: "state, dropped",
  wrong: "state that the row goes on from, and should not",
  due: "state that it should go on from",
};
const WITHOUT_STATES = new Set(["full_attention", "sliding_attention", "chunked_attention"]);
const MODELS = /** @type {const} */ (["target", "draft"]);

/**
 * How many lanes of states a row has: one for each model that keeps any.
 * @param {Film} film
 */
export function stateLanes({ json }) {
  return json.rounds[0]?.stages[0].states?.filter((rows) => rows.length).length ?? 0;
}

/**
 * [model, marks] of a row, for each model that keeps states.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @returns {["target" | "draft", StateMark[]][]}
 */
export function statesOf(film, step, row) {
  const states = film.stage(step).states ?? [];
  return MODELS.flatMap((model, n) => (states[n]?.[row] ? [[model, states[n][row]]] : []));
}

/**
 * The states in a slot, in words; nothing where there are none.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @param {number} slot
 */
export function stateWords(film, step, row, slot) {
  return statesOf(film, step, row).flatMap(([model, marks]) => {
    const found = marks.filter((mark) => mark[1] === slot);
    if (!found.length) return [];
    const kinds = found.map(([kind]) => STATE_WORDS[kind]).join("; ");
    return [`${model}'s ${kinds}${sizeWords(film, model)}`];
  });
}

/**
 * " (6 of 8 layers, 163 kB)", as far as the record says it.
 * @param {Film} film
 * @param {"target" | "draft"} model
 */
function sizeWords({ json }, model) {
  const layers = layerWords(json.meta.layers?.[model], (type) => !WITHOUT_STATES.has(type));
  const bytes = json.meta.bytes_per_state?.[model];
  const size = bytes ? `${Math.round(bytes / 100) / 10} kB` : "";
  const words = [layers, size].filter((each) => each).join(", ");
  return words && ` (${words})`;
}

/**
 * "6 of 8 layers", of the types that fit; "" where the record does not say it.
 * @param {Record<string, number> | undefined} layers
 * @param {(type: string) => boolean} fits
 */
export function layerWords(layers, fits) {
  const types = Object.entries(layers ?? {});
  const found = sumOf(types.filter(([type]) => fits(type)).map(([, many]) => many));
  const all = sumOf(types.map(([, many]) => many));
  return found ? `${found} of ${counted(all, "layer")}` : "";
}
