import assert from "node:assert/strict";
import test from "node:test";
import { draftCards } from "../src/film/cards.js";
import { tinyFilm } from "./tiny.js";

/**
 * @param {ReturnType<typeof tinyFilm>} film
 * @param {number} step
 */
function words(film, step) {
  return draftCards(film, step, 0).map((card) => `${card.name} ${card.fate}: ${card.words}`);
}

test("before the acceptance no draft has a fate", () => {
  assert.deepEqual(words(tinyFilm(), 1), [
    "d1 waiting: the target has not read it",
    "d2 waiting: the target has not read it",
    "bonus waiting: comes if all drafts are accepted",
  ]);
});

test("Python's fates are put into words", () => {
  assert.deepEqual(words(tinyFilm(), 3), [
    "d1 accepted: accepted: the target's first choice",
    "d2 rejected: rejected: the target says ‘\u2068nine\u2069’",
    "bonus unreached: not reached: a draft was rejected",
  ]);
});

test("only the token behind the accepted drafts is the target's own", () => {
  const cards = draftCards(tinyFilm(), 3, 0);
  assert.deepEqual(
    cards.map((card) => [card.emitted, card.own]),
    [
      [7, false],
      [9, true],
      [null, false],
    ],
  );
});

test("a wrong token is called wrong, and says what the target chose", () => {
  const film = tinyFilm((json) => {
    json.rounds[0].rows[0].fates = [1, 6, 8];
    json.rounds[0].rows[0].target[1] = [[8, 0.9]];
  });
  const card = "d2 wrong: the target says ‘\u2068eight\u2069’, yet ‘\u2068nine\u2069’ is emitted";
  assert.equal(words(film, 3)[1], card);
});

test("a film that is not judged says what happened, and not whether it was right", () => {
  const film = tinyFilm((json) => {
    json.violations = null;
  });
  assert.deepEqual(words(film, 3).slice(0, 2), [
    "d1 accepted: accepted",
    "d2 rejected: rejected: ‘\u2068nine\u2069’ is emitted",
  ]);
});

test("a sampled run names the probability with which a draft is accepted", () => {
  const film = tinyFilm((json) => {
    json.meta.sampling = { coupling: "rejection", temperature: 1, top_k: null, top_p: null };
  });
  assert.deepEqual(words(film, 3).slice(0, 2), [
    "d1 accepted: accepted with min(1, p/q) = 1.00",
    "d2 rejected: rejected against min(1, p/q) = 0.40; drawn from max(p − q, 0)",
  ]);
  film.json.meta.sampling = { coupling: "rejection", temperature: 0.5, top_k: null, top_p: null };
  assert.match(words(film, 3)[0], /p and q warped$/);
});

test("a row that idles has no cards", () => {
  const film = tinyFilm((json) => {
    json.rounds[0].rows[0].gained = 0;
  });
  assert.deepEqual(draftCards(film, 3, 0), []);
});

test("typical acceptance is put into words", () => {
  const film = tinyFilm((json) => {
    json.meta.sampling = { coupling: "typical", temperature: 1, top_k: null, top_p: null };
  });
  assert.deepEqual(words(film, 3).slice(0, 2), [
    "d1 accepted: accepted: likely enough for the target",
    "d2 rejected: rejected: too unlikely; the target draws ‘\u2068nine\u2069’",
  ]);
});
