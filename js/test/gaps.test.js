import assert from "node:assert/strict";
import test from "node:test";
import { draftCards } from "../src/film/cards.js";
import { driftsAway } from "../src/film/positions.js";
import { maskCells } from "../src/film/sight.js";
import { verdictOf } from "../src/page/run.js";
import { InvariantPanel } from "../src/panels/invariants.js";
import { Legend } from "../src/panels/legend.js";
import { MaskPanel } from "../src/panels/mask.js";
import { maskVerdict } from "../src/panels/maskwords.js";
import { TimePanel } from "../src/panels/time.js";
import { VerifyPanel } from "../src/panels/verify.js";
import { tinyFilm } from "./tiny.js";

const GAPS = {
  time: "Times of the phases were not logged.",
  bytes: "How many bytes a token's K/V takes was not logged.",
  cards: "the target's probabilities were not logged",
  masks: ["What the target model's queries saw was not logged.", null],
  choices: true,
  draft: true,
  batch: ["position ids were not logged"],
  unchecked: ["mask (target): not logged", "scores: not logged"],
};

/** @param {object} [change] */
function lacking(change = {}) {
  return tinyFilm((json) => {
    json.gaps = { ...GAPS, ...change };
  });
}

/**
 * @param {any} film
 * @param {number} [step]
 * @returns {any}
 */
function viewOf(film, step = 2) {
  return { film, step, row: 0, hover: null, other: null, zoom: null, pan: 0, turn: 0 };
}

test("a mask of which nothing is known is not drawn, and says why", () => {
  const film = lacking();
  assert.equal(maskCells(film, 2, 0), null);
  assert.deepEqual(maskVerdict(film, 2, null), [true, GAPS.masks[0]]);
  assert.equal(new MaskPanel(viewOf(film)).title(), "Row 0 · attention mask");
  assert.ok(maskCells(tinyFilm(), 2, 0), "a run of specviz has one");
});

test("the panel of times is one line where there are none", () => {
  const panel = new TimePanel(viewOf(lacking()));
  const words = `${GAPS.time} ${GAPS.bytes}`;
  assert.equal(panel.describe(), `Time · round 0. ${words}`);
  assert.deepEqual(panel.table(), { caption: words, head: [], rows: [] });
  assert.equal(panel.hit(200, 30, 600), null);
});

test("what was not checked stands in the list of invariants and in the verdict", () => {
  const film = lacking();
  const panel = new InvariantPanel(viewOf(film));
  const words = "Not checked: mask (target): not logged; scores: not logged.";
  assert.equal(panel.unchecked(), words);
  assert.match(panel.title(), /all that were checked hold in all 1 round$/);
  assert.equal(panel.table().caption, words);
  assert.equal(verdictOf(film), "✓ nothing broken, as far as it was logged");
  assert.equal(new InvariantPanel(viewOf(tinyFilm())).unchecked(), "");
});

test("without the target's choices nothing is said of them", () => {
  const words = draftCards(lacking(), 3, 0).map((card) => card.words);
  assert.deepEqual(words.slice(0, 2), ["accepted", "rejected: ‘\u2068nine\u2069’ is emitted"]);
  const known = draftCards(lacking({ choices: false }), 3, 0)[0];
  assert.equal(known.words, "accepted: the target's first choice");
});

test("titles and the legend say what a log lacks", () => {
  const film = lacking();
  assert.match(new VerifyPanel(viewOf(film)).title(), /; the target's probabilities were not/);
  assert.match(new Legend(viewOf(film)).describe(), /position ids were not logged\.$/);
  assert.doesNotMatch(new Legend(viewOf(tinyFilm())).describe(), /logged/);
});

test("a position that is not known drifts from nothing", () => {
  assert.equal(driftsAway({ position: -1, index: 4 }), false);
  assert.equal(driftsAway({ position: 5, index: 4 }), true);
});
