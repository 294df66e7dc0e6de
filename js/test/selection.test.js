import assert from "node:assert/strict";
import test from "node:test";
import { eventsOf } from "../src/film/events.js";
import { draftCards } from "../src/film/cards.js";
import { spending } from "../src/film/selection.js";
import { capacityWords } from "../src/panels/capacity.js";
import { stripIn } from "../src/panels/strip.js";
import { tinyFilm } from "./tiny.js";

// As Python writes it: of two drafts the first is verified and accepted, for the second there was
// no capacity left.
/** @param {(json: any) => void} [change] */
function partial(change = () => {}) {
  return tinyFilm((json) => {
    json.meta.selector = "tetris";
    Object.assign(json.rounds[0], { capacity: 1 });
    Object.assign(json.rounds[0].rows[0], {
      verified: 1,
      p: [0.75, null],
      target: [[[7, 0.75]], [[9, 0.6]], []],
      fates: [1, 3, 9],
      scores: [-0.7, -2.079],
    });
    change(json);
  });
}

/** @param {any} json */
function addRow(json) {
  json.rounds[0].capacity = 3;
  json.rounds[0].rows.push({ ...json.rounds[0].rows[0], request: 1, verified: 2 });
}

/**
 * @param {ReturnType<typeof tinyFilm>} film
 * @param {number} step
 */
function words(film, step) {
  return draftCards(film, step, 0).map((card) => `${card.name} ${card.fate}: ${card.words}`);
}

test("what is not verified stands behind the token that the target adds", () => {
  const left = "not verified: the capacity is spent on the drafts before it (score\u00a0−2.08)";
  assert.deepEqual(words(partial(), 1), [
    "d1 waiting: the target has not read it",
    "bonus waiting: comes if all verified drafts are accepted",
    `d2 unverified: ${left}`,
  ]);
  assert.deepEqual(words(partial(), 3), [
    "d1 accepted: accepted: the target's first choice",
    "bonus bonus: all verified drafts accepted: the target adds its own",
    `d2 unverified: ${left}`,
  ]);
});

test("before anything is drafted, no draft is left out", () => {
  assert.deepEqual(
    draftCards(partial(), 0, 0).map((card) => card.name),
    ["d1", "d2", "bonus"],
  );
});

test("a draft that is not verified keeps its own choices, and emits nothing", () => {
  const card = draftCards(partial(), 3, 0)[2];
  assert.deepEqual(
    [card.draft, card.q, card.p, card.emitted, card.own],
    [8, 0.25, null, null, false],
  );
  assert.deepEqual([card.draftChoices, card.targetChoices], [[[8, 0.25]], []]);
  assert.equal(card.index, 4);
});

test("the reason is where the capacity went", () => {
  assert.match(words(partial(addRow), 3)[2], /: the selector spent the capacity on other rows \(/);
  const spare = partial((json) => {
    json.rounds[0].capacity = 2;
    delete json.rounds[0].rows[0].scores;
  });
  assert.match(words(spare, 3)[2], /: not verified: the selector stopped before it$/);
  const plain = partial((json) => {
    delete json.rounds[0].capacity;
  });
  assert.match(words(plain, 3)[2], /: not verified: the drafter left it out/);
});

test("a row of which nothing is verified has the target's own token first", () => {
  const film = partial((json) => {
    Object.assign(json.rounds[0].rows[0], { verified: 0, accepted: 0, gained: 1, emitted: [9] });
    json.rounds[0].rows[0].fates = [3, 9, 9];
  });
  assert.deepEqual(
    draftCards(film, 3, 0).map((card) => `${card.name} ${card.fate}`),
    ["next bonus", "d1 unverified", "d2 unverified"],
  );
});

test("the target's own token behind verified drafts replaces no draft", () => {
  const film = partial();
  assert.equal(film.rejectedDraft(film.rows(3)[0]), null);
  assert.deepEqual(eventsOf(film, "rejection"), []);
  assert.deepEqual(
    eventsOf(film, "full").map((each) => each.step),
    [3],
  );
});

test("the capacity is spent row by row, once drafts exist", () => {
  assert.equal(spending(tinyFilm(), 1), null);
  assert.deepEqual(spending(partial(addRow), 0)?.drafts, []);
  assert.deepEqual(spending(partial(addRow), 1)?.drafts, [
    { row: 0, draft: 0 },
    { row: 1, draft: 0 },
    { row: 1, draft: 1 },
  ]);
});

test("the capacity in words", () => {
  /** @param {number} step */
  const at = (step) => capacityWords(/** @type {any} */ ({ film: partial(addRow), step }));
  assert.equal(at(0), ". Capacity: 3 drafts, not spent yet.");
  assert.equal(at(1), ". Capacity: 3 drafts; row 0 gets 1, row 1 gets 2; 0 not used.");
  assert.equal(capacityWords(/** @type {any} */ ({ film: tinyFilm(), step: 1 })), "");
});

test("a strip takes as many lines as its cells need, and none where there is no capacity", () => {
  assert.equal(stripIn(undefined, 500).height, 0);
  const few = stripIn(12, 500);
  const many = stripIn(100, 500);
  assert.equal(few.cell, 30);
  assert.equal(few.across >= 12, true);
  assert.equal(many.cell, 15);
  assert.equal(many.height - few.height, 3 * 20);
  assert.equal(Math.ceil(100 / many.across), 4);
  assert.equal(stripIn(0, 500).height, stripIn(1, 500).height);
});
