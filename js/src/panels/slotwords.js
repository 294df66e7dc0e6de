// What one slot of a row holds, in words: its token, and the K/V of both models beside it.

import { drafterName, keepsNothing, sourceWords } from "../film/head.js";
import { driftsAway } from "../film/positions.js";
import { leftOutWords } from "../film/selection.js";
import { stateWords } from "../film/states.js";
import { liesUnder } from "./lanelooks.js";

/** @import { Cell, Film, LaneName, View } from "../types.d.ts" */

/**
 * What the token in the slot is: "accepted now", "stale", and so on.
 * @param {View} view
 * @param {number} row
 * @param {Cell} cell
 */
export function slotState({ film, step }, row, cell) {
  const wrong = cell.kind === "bonus_now" && film.wrongEnds(step).has(row);
  return film.wordOf(wrong ? { ...cell, kind: "wrong_now" } : cell);
}

/**
 * What a model's cache holds in a slot, compared with the token that belongs there.
 * @param {View} view
 * @param {Exclude<LaneName, "tokens">} model
 * @param {number} row
 * @param {number} slot
 * @param {Cell} cell
 */
export function slotKv({ film, step }, model, row, slot, cell) {
  const held = film.cell(step, model, row, slot);
  if (!held || held.kind === "empty") return "empty";
  if (held.kind === "pending")
    return liesUnder(held.index, held.request, cell.request) ? "stale" : "empty";
  if (held.kind === "held") return held.index === cell.index ? "valid" : `of index ${held.index}`;
  if (held.token < 0 && held.index >= 0)
    return held.kind === "drafted" ? "of a mask entry" : `${held.kind}, of a mask entry`;
  return held.kind === "drafted" ? "of a draft" : held.kind;
}

/**
 * @param {View} view
 * @param {number} row
 * @param {number} slot
 * @param {Cell} cell
 */
export function slotHint(view, row, slot, cell) {
  const { film, step } = view;
  if (cell.kind === "unverified") return unverifiedHint(view, row, slot, cell);
  const token = cell.token >= 0 ? `“${film.text(cell.token)}” · ` : "";
  const what = slotState(view, row, cell) + replaced(film, step, row, cell);
  const drift = film.checked && driftsAway(cell) ? " (drift!)" : "";
  const position = cell.position < 0 ? "not known" : cell.position;
  const index = `index ${cell.index}, position ${position}${drift}`;
  const target = `target K/V ${slotKv(view, "target", row, slot, cell)}`;
  const place = `${token}row ${row}, slot ${slot}: ${what}`;
  const kv = [target, ...headKv(view, row, slot, cell)].join(", ");
  const states = stateWords(film, step, row, slot);
  return [place, ...(cell.index < 0 ? [] : [index]), kv, ...states].join(" · ");
}

/**
 * The K/V of what drafts, and for a head what it was read with; nothing where it keeps none.
 * @param {View} view
 * @param {number} row
 * @param {number} slot
 * @param {Cell} cell
 */
function headKv(view, row, slot, cell) {
  const { film, step } = view;
  if (keepsNothing(film)) return [];
  const read = sourceWords(film, step, row, slot);
  const words = `${drafterName(film)} K/V ${slotKv(view, "draft", row, slot, cell)}`;
  return [read ? `${words}: ${read}` : words];
}

/**
 * The target never reads it: it has no position id, and no K/V of it will be there.
 * @param {View} view
 * @param {number} row
 * @param {number} slot
 * @param {Cell} cell
 */
function unverifiedHint({ film, step }, row, slot, cell) {
  const entry = film.rows(step)[row];
  const number = slot - entry.pending - 1;
  const why = leftOutWords(film, step, row, number);
  const place = `“${film.text(cell.token)}” · row ${row}, slot ${slot}: draft ${number + 1}`;
  const read = sourceWords(film, step, row, slot);
  const head = read ? ` · ${drafterName(film)} K/V: ${read}` : "";
  return `${place}, ${why} · index ${cell.index}${head}`;
}

/**
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @param {Cell} cell
 */
function replaced(film, step, row, cell) {
  const draft = cell.kind === "bonus_now" ? film.rejectedDraft(film.rows(step)[row]) : null;
  return draft === null ? "" : `, in place of the rejected draft “${film.text(draft)}”`;
}
