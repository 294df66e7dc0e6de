// Events: where something happens in a run: a step, a row, and the slot of the token that tells it.
// Rejections and full acceptances belong to a request, since in a large batch they happen in every
// round; violations and ends of texts are rare, so they count in all rows. Knows no page.

import { isFull } from "./tree.js";

/** @import { Film, RowEntry, RunEvent } from "../types.d.ts" */

/** Events of the chosen row only. */
export const OF_ONE_ROW = new Set(["rejection", "full"]);

/** @type {WeakMap<Film, Map<string, RunEvent[]>>} */
const known = new WeakMap();

/**
 * All events of a kind ("rejection", "full", "violation" or "eos"), by step and row.
 * @param {Film} film
 * @param {string} what
 * @returns {RunEvent[]}
 */
export function eventsOf(film, what) {
  const kinds = known.get(film) ?? new Map();
  known.set(film, kinds);
  const found = kinds.get(what) ?? find(film, what);
  kinds.set(what, found);
  return found;
}

/**
 * @param {Film} film
 * @param {string} what
 * @returns {RunEvent[]}
 */
function find(film, what) {
  const events = what === "violation" ? violations(film) : acceptances(film, what);
  return events.sort((one, other) => one.step - other.step || one.row - other.row);
}

/**
 * Of several violations of a row in a step, the first one.
 * @param {Film} film
 */
function violations(film) {
  /** @type {Map<string, RunEvent>} */
  const found = new Map();
  for (const { step, request, row, slot, rule } of film.violations) {
    const here = film.rowOf(step, request);
    const at = here < 0 ? row : here;
    const key = `${step} ${at}`;
    if (!found.has(key)) found.set(key, { step, row: at, request, slot, words: rule });
  }
  return [...found.values()];
}

/**
 * @param {Film} film
 * @param {string} what
 */
function acceptances(film, what) {
  const ends = new Set(film.json.meta.eos_token_ids);
  /** @type {Record<string, (row: RowEntry) => number>} where in `emitted` it shows, -1 for nowhere */
  const places = {
    rejection: (row) => (row.gained > 0 && row.verified > 0 && !isFull(row) ? row.accepted : -1),
    full: (row) => (isFull(row) ? Math.max(row.gained - 1, 0) : -1),
    eos: (row) => row.emitted.findIndex((token) => ends.has(token)),
  };
  return film.json.rounds.flatMap((round, number) => {
    const step = film.step(number, "accept");
    return round.rows.flatMap((entry, row) => {
      const place = places[what](entry);
      if (place < 0) return [];
      const slot = slotOf(film, step, row, entry.length + Math.min(place, entry.gained - 1));
      return [{ step, row, request: entry.request, slot, words: "" }];
    });
  });
}

/**
 * The slot that holds a row's token; null where none does.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @param {number} index
 */
export function slotOf(film, step, row, index) {
  const { request } = film.rows(step)[row];
  for (const [start, stop, , first, , owner] of film.lane(step, "tokens", row))
    if (owner === request && index >= first && index < first + stop - start)
      return start + index - first;
  return null;
}
