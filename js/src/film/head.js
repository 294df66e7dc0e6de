// Head: what a draft head is called, and where its K/V took its features from. Python found it out
// (specviz/record/replay.py). Knows no pixels.

/** @import { Cell, Film, Source } from "../types.d.ts" */

/**
 * What the K/V of the model that drafts is called after, in a lane's name or a legend.
 * @param {Film} film
 */
export function drafterName(film) {
  return film.json.head ?? "draft";
}

/**
 * Whether a head drafts that keeps no K/V, so that there is nothing to show of it.
 * @param {Film} film
 */
export function keepsNothing({ json }) {
  return json.head !== undefined && json.meta.kv_bytes_per_slot.draft === 0;
}

/**
 * Where the head's K/V in a slot took its feature from; null where no head has K/V that counts.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @param {number} slot
 * @returns {Source | null}
 */
export function sourceAt(film, step, row, slot) {
  if (film.json.head === undefined) return null;
  const held = film.cell(step, "draft", row, slot);
  if (!held || (held.kind !== "held" && held.kind !== "drafted")) return null;
  const guess = guessesOf(film, step, row).find(([start, stop]) => slot >= start && slot < stop);
  if (guess) return guess[2];
  return held.index >= featureLag(film) ? "target" : "none";
}

/**
 * How many tokens before an entry's own the token lies whose feature the head reads.
 * @param {Film} film
 */
export function featureLag({ json }) {
  return json.meta.draft_kv === "masks" ? 0 : 1;
}

/**
 * [slot, stop, source] of a row's K/V that was not made from the target's features.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @returns {[slot: number, stop: number, source: Source][]}
 */
export function guessesOf(film, step, row) {
  const runs = film.stage(step).guessed?.[row] ?? [];
  return runs.map(([slot, stop, source]) => [slot, stop, film.json.sources?.[source] ?? "none"]);
}

/**
 * Whether any of the head's K/V in the film is of that source.
 * @param {Film} film
 * @param {Source} source
 */
export function hasSource({ json }, source) {
  const number = json.sources?.indexOf(source) ?? -1;
  return (
    number >= 0 &&
    json.rounds.some(({ stages }) =>
      stages.some(({ guessed }) => guessed?.some((row) => row.some((run) => run[2] === number))),
    )
  );
}

/**
 * What the head read in a slot: its token, and the feature beside it; "" where no head did.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @param {number} slot
 */
export function sourceWords(film, step, row, slot) {
  const source = sourceAt(film, step, row, slot);
  if (!source) return "";
  const { index } = /** @type {Cell} */ (film.cell(step, "draft", row, slot));
  const words = {
    none: `token ${index}, read without a feature, since no token is before it`,
    target: featureLag(film)
      ? `token ${index}, read with the target's feature of token ${index - 1}`
      : `token ${index}, made from the target's features of this very token`,
    own: `token ${index}, read with the head's own feature of token ${index - 1}`,
    mask: `mask entry for token ${index}, right for this round only`,
    block: `token ${index} as the first of a block, right for this round only`,
  };
  return words[source];
}
