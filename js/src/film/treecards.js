// Tree cards: what became of each draft of a row whose drafts branch, and of the target's own token
// behind the accepted ones. As in `cards`, Python has judged them. Knows no pixels.

import { quoted } from "../draw/words.js";
import { leftOutWords } from "./selection.js";
import { depthOf, isAccepted, lastOf, lineOf, parentOf } from "./tree.js";

/** @import { CardData, Film, RowEntry } from "../types.d.ts" */

/**
 * A card for each draft that the target verifies, one for its own token, and one for each other
 * draft.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @returns {CardData[]}
 */
export function treeCards(film, step, row) {
  const entry = film.rows(step)[row];
  const stop = film.phase(step) ? entry.verified : entry.drafted;
  return Array.from({ length: entry.drafted + 1 }, (_, n) => {
    if (n === stop) return ownCard(film, step, entry, n);
    return nodeCard(film, step, row, n > stop ? n - 1 : n, n > stop);
  });
}

/**
 * @param {number} j
 */
function nameOf(j) {
  return j < 0 ? "the pending token" : `d${j + 1}`;
}

/**
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @param {number} j
 * @param {boolean} leftOut
 * @returns {CardData}
 */
function nodeCard(film, step, row, j, leftOut) {
  const entry = film.rows(step)[row];
  const phase = film.phase(step);
  const drafted = phase >= 1;
  const read = phase >= 2 && !leftOut;
  const card = {
    name: nameOf(j),
    number: j,
    index: entry.length + depthOf(entry, j) - 1,
    last: false,
    draft: drafted ? entry.drafts[j] : null,
    q: drafted ? entry.q[j] : null,
    p: read ? entry.p[j] : null,
    draftChoices: drafted ? entry.draft[j] : [],
    targetChoices: read ? (entry.target[parentOf(entry, j) + 1] ?? []) : [],
    emitted: null,
    own: false,
  };
  if (leftOut) return { ...card, fate: "unverified", words: leftOutWords(film, step, row, j) };
  if (!film.judged(step)) return { ...card, fate: "waiting", words: waitingWords(phase) };
  const fate = film.json.fates[entry.fates[j]];
  const place = entry.path?.indexOf(j) ?? -1;
  const emitted = place >= 0 && place < entry.gained ? entry.emitted[place] : null;
  return { ...card, fate, words: nodeWords(film, entry, j, fate), emitted };
}

/** @param {number} phase */
function waitingWords(phase) {
  if (phase === 2) return "not compared yet";
  return phase === 1 ? "the target has not read it" : "not drafted yet";
}

/**
 * The target's own token: behind the last accepted draft, wherever in the tree that stands.
 * @param {Film} film
 * @param {number} step
 * @param {RowEntry} entry
 * @param {number} n
 * @returns {CardData}
 */
function ownCard(film, step, entry, n) {
  const judged = film.judged(step);
  const { accepted, gained } = entry;
  const fate = judged ? film.json.fates[entry.fates[n]] : "waiting";
  const emitted = judged && gained > accepted ? entry.emitted[accepted] : null;
  return {
    name: entry.verified ? "bonus" : "next",
    number: null,
    index: judged ? entry.length + accepted : null,
    last: true,
    draft: null,
    q: null,
    p: null,
    draftChoices: [],
    targetChoices: judged ? (entry.target[lastOf(entry) + 1] ?? []) : [],
    fate,
    words: judged ? ownWords(film, entry, fate) : "comes behind the last accepted draft",
    emitted,
    own: emitted !== null,
  };
}

/**
 * @param {Film} film
 * @param {RowEntry} entry
 * @param {number} j
 * @param {string} fate
 */
function nodeWords(film, entry, j, fate) {
  if (fate === "accepted") return acceptedWords(film);
  if (fate === "rejected") return rejectedWords(film, entry, j);
  if (fate === "kept") return "agreed; kept as the row's last of this round";
  if (fate === "discarded") return "agreed, but thrown away: another row stopped earlier";
  if (fate === "ended") return `${isAccepted(entry, j) ? "agreed, but " : ""}the row ended`;
  if (fate === "wrong") {
    const choice = entry.target[parentOf(entry, j) + 1][0][0];
    return `accepted, though the target says ${quoted(film.text(choice))}`;
  }
  const [stopped] = lineOf(entry, j).filter((draft) => !isAccepted(entry, draft));
  if (stopped === j) return "cut off: another row stopped earlier";
  return `not reached: it follows ${nameOf(stopped)}`;
}

/** @param {Film} film */
function acceptedWords(film) {
  const { sampling } = film.json.meta;
  if (!film.knowsChoices) return "accepted";
  if (!sampling) return "accepted: the target's first choice";
  return sampling.coupling === "gumbel" ? "accepted: same choice under the same noise" : "accepted";
}

/**
 * What the target took instead: another draft of the same parent, or a token of its own.
 * @param {Film} film
 * @param {RowEntry} entry
 * @param {number} j
 */
function rejectedWords(film, entry, j) {
  const parent = parentOf(entry, j);
  const taken = entry.path?.find((draft) => parentOf(entry, draft) === parent);
  const token = taken === undefined ? entry.emitted[entry.accepted] : entry.drafts[taken];
  const word = quoted(film.text(token));
  const name = taken === undefined ? word : `${word} (${nameOf(taken)})`;
  if (!film.knowsChoices) return `rejected: ${name} is emitted`;
  const { sampling } = film.json.meta;
  if (!sampling) return `rejected: the target says ${name}`;
  if (sampling.coupling === "gumbel")
    return `rejected: under the same noise the target draws ${name}`;
  return `rejected: the target takes ${name}`;
}

/**
 * @param {Film} film
 * @param {RowEntry} entry
 * @param {string} fate
 */
function ownWords(film, entry, fate) {
  const behind = nameOf(lastOf(entry));
  if (fate === "ended") return "the row ended";
  if (fate === "unreached") return "cut off: another row stopped earlier";
  const emitted = quoted(film.text(entry.emitted[entry.accepted]));
  if (fate === "wrong") {
    const choice = entry.target[lastOf(entry) + 1][0][0];
    return `the target says ${quoted(film.text(choice))}, yet ${emitted} is emitted`;
  }
  if (!film.knowsChoices) return `${emitted} is emitted after ${behind}`;
  const { sampling } = film.json.meta;
  if (!sampling) return `the target's first choice after ${behind}`;
  return `drawn by the target after ${behind}`;
}
