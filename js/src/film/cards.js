// Cards: what became of each draft of a row in one round, as far as it is known at a step. Python
// judged each of them (specviz/checks/fates.py); here its verdict is put into words. Knows no
// pixels.

import { chance, quoted } from "../draw/words.js";
import { leftOutWords } from "./selection.js";
import { branches } from "./tree.js";
import { treeCards } from "./treecards.js";

/** @import { CardData, Film, RowEntry } from "../types.d.ts" */

// How a card is marked; `pale`: the draft decided nothing.
/** @type {Record<string, { sign: string, pale?: boolean }>} */
export const MARKS = {
  waiting: { sign: "?" },
  accepted: { sign: "✓" },
  rejected: { sign: "✗" },
  bonus: { sign: "●" },
  kept: { sign: "✓" },
  discarded: { sign: "↺" },
  wrong: { sign: "▲" },
  ended: { sign: "■", pale: true },
  unreached: { sign: "–", pale: true },
  unverified: { sign: "⊘", pale: true },
};

/**
 * A card for each draft that the target verifies, one for the token behind the last of them, and
 * one for each other draft; none for a row that idles. Which are verified is known once they exist.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @returns {CardData[]}
 */
export function draftCards(film, step, row) {
  const entry = film.rows(step)[row];
  if (!entry?.gained) return [];
  if (branches(entry)) return treeCards(film, step, row);
  const stop = film.phase(step) ? entry.verified : entry.drafted;
  return Array.from({ length: entry.drafted + 1 }, (_, n) =>
    n > stop ? unverifiedCard(film, step, row, n - 1) : draftCard(film, step, entry, n, n === stop),
  );
}

/**
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @param {number} j
 * @returns {CardData}
 */
function unverifiedCard(film, step, row, j) {
  const card = bareCard(film, step, film.rows(step)[row], j, false);
  const words = leftOutWords(film, step, row, j);
  const judged = { fate: "unverified", words, emitted: null, own: false };
  return { ...card, p: null, targetChoices: [], ...judged };
}

/**
 * @param {Film} film
 * @param {number} step
 * @param {RowEntry} entry
 * @param {number} j
 * @param {boolean} last
 * @returns {CardData}
 */
function draftCard(film, step, entry, j, last) {
  const card = bareCard(film, step, entry, j, last);
  if (!film.judged(step)) {
    const words = waitingWords(film.phase(step), entry, last, j);
    return { ...card, fate: "waiting", words, emitted: null, own: false };
  }
  const fate = film.json.fates[entry.fates[j]];
  const words = fateWords(film, entry, j, fate);
  const emitted = j < entry.gained ? entry.emitted[j] : null;
  const own = j === entry.accepted && emitted !== null && fate !== "accepted";
  return { ...card, fate, words, emitted, own };
}

/**
 * What draft and target say, as far as it is known.
 * @param {Film} film
 * @param {number} step
 * @param {RowEntry} entry
 * @param {number} j
 * @param {boolean} last
 */
function bareCard(film, step, entry, j, last) {
  const phase = film.phase(step);
  const drafted = !last && phase >= 1;
  const verified = phase >= 2;
  return {
    name: last ? (j ? "bonus" : "next") : `d${j + 1}`,
    index: entry.length + j,
    last,
    draft: drafted ? entry.drafts[j] : null,
    q: drafted ? entry.q[j] : null,
    p: verified && !last ? entry.p[j] : null,
    draftChoices: drafted ? entry.draft[j] : [],
    targetChoices: verified ? entry.target[j] : [],
  };
}

/**
 * @param {number} phase
 * @param {RowEntry} entry
 * @param {boolean} last
 * @param {number} j
 */
function waitingWords(phase, entry, last, j) {
  if (phase === 2) return "not compared yet";
  if (last) return j ? `comes if ${allDrafts(entry, j)} are accepted` : "not computed yet";
  return phase === 1 ? "the target has not read it" : "not drafted yet";
}

/**
 * The first j drafts, behind which the target's own token stands.
 * @param {RowEntry} entry
 * @param {number} j
 */
function allDrafts({ drafted }, j) {
  return j < drafted ? "all verified drafts" : "all drafts";
}

/**
 * Why draft j, or the token behind the last draft, has its fate.
 * @param {Film} film
 * @param {RowEntry} entry
 * @param {number} j
 * @param {string} fate
 * @returns {string}
 */
function fateWords(film, entry, j, fate) {
  const { accepted, discarded, verified, gained } = entry;
  if (fate === "accepted") return acceptedWords(film, entry, j);
  if (fate === "rejected") return rejectedWords(film, entry, j);
  if (fate === "bonus") return bonusWords(film, entry, j);
  if (fate === "wrong") return wrongWords(film, entry, j);
  if (fate === "kept") return "agreed; kept as the row's last of this round";
  if (fate === "ended")
    return `${j < accepted ? "agreed, but " : ""}the row ended: ${cause(film, entry)}`;
  if (fate === "discarded") {
    const agreed = j < verified ? "agreed, but " : "";
    return `${agreed}thrown away: another row stopped earlier`;
  }
  if (j === verified)
    return `not reached: ${gained > accepted ? "a draft was rejected" : "the row ended"}`;
  return j === accepted + discarded ? "cut off: another row stopped earlier" : "not reached";
}

/**
 * What ended a row.
 * @param {Film} film
 * @param {RowEntry} entry
 */
function cause(film, { request, emitted }) {
  const { eos_token_ids: eos, status } = film.json.meta;
  if (emitted.some((token) => eos.includes(token))) return "EOS";
  return status?.[request] === "stop" ? "a stop string" : "its budget is spent";
}

/**
 * @param {Film} film
 * @param {RowEntry} entry
 * @param {number} j
 */
function acceptedWords(film, entry, j) {
  const { sampling } = film.json.meta;
  if (!film.knowsChoices) return "accepted";
  if (!sampling) return "accepted: the target's first choice";
  if (sampling.coupling === "gumbel") return "accepted: same choice under the same noise";
  if (sampling.coupling === "typical") return "accepted: likely enough for the target";
  return `accepted with ${ratio(film, entry, j)}`;
}

/**
 * @param {Film} film
 * @param {RowEntry} entry
 * @param {number} j
 */
function rejectedWords(film, entry, j) {
  const { sampling } = film.json.meta;
  const emitted = quoted(film.text(entry.emitted[j]));
  if (!film.knowsChoices) return `rejected: ${emitted} is emitted`;
  if (!sampling) return `rejected: the target says ${emitted}`;
  if (sampling.coupling === "gumbel") {
    return `rejected: under the same noise the target draws ${emitted}`;
  }
  if (sampling.coupling === "typical") return `rejected: too unlikely; the target draws ${emitted}`;
  return `rejected against ${ratio(film, entry, j)}; drawn from max(p − q, 0)`;
}

/**
 * @param {Film} film
 * @param {RowEntry} entry
 * @param {number} j
 */
function bonusWords(film, entry, j) {
  const emitted = `${quoted(film.text(entry.emitted[j]))} is emitted`;
  if (!film.knowsChoices) return j ? `${allDrafts(entry, j)} accepted: ${emitted}` : emitted;
  if (film.json.meta.sampling) return "drawn from the target's p";
  if (!j) return "the target's first choice";
  return `${allDrafts(entry, j)} accepted: the target adds its own`;
}

/**
 * @param {Film} film
 * @param {RowEntry} entry
 * @param {number} j
 */
function wrongWords(film, entry, j) {
  const target = `the target says ${quoted(film.text(entry.target[j][0][0]))}`;
  if (j < entry.accepted) return `accepted, though ${target}`;
  const emitted = entry.emitted[j];
  if (emitted === entry.drafts[j]) return `${target}, yet the draft's own token is kept`;
  return `${target}, yet ${quoted(film.text(emitted))} is emitted`;
}

/**
 * The probability with which a draft is accepted. The record holds p and q as the models gave them,
 * so it is a number only where sampling leaves them unchanged.
 * @param {Film} film
 * @param {RowEntry} entry
 * @param {number} j
 */
function ratio(film, entry, j) {
  const { temperature, top_k, top_p } = /** @type {any} */ (film.json.meta.sampling);
  const p = entry.p[j];
  const q = entry.q[j] ?? 1;
  const warped = temperature !== 1 || top_k || (top_p && top_p < 1);
  if (warped || p === null) return "min(1, p/q), p and q warped";
  return `min(1, p/q) = ${chance(Math.min(1, p / q))}`;
}
