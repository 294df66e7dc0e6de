import assert from "node:assert/strict";
import test from "node:test";
import { Comparison } from "../src/film/compare.js";
import { eventsOf } from "../src/film/events.js";
import { jump, jumpToDifference } from "../src/page/jumps.js";
import { tinyFilm, tinyJson } from "./tiny.js";

/** Two rows in each of three rounds; row 1 always accepts both drafts. @param {any} json */
function twoRows(json) {
  const [round] = json.rounds;
  const [row] = round.rows;
  const full = { ...row, request: 1, accepted: 2, gained: 3, emitted: [7, 8, 4], fates: [1, 1, 3] };
  json.requests.push(structuredClone(json.requests[0]));
  for (const stage of round.stages)
    for (const lane of ["tokens", "target", "draft"]) stage[lane].push(stage[lane][0]);
  round.rows = [{ ...row, emitted: [7, 5] }, full];
  json.rounds = [0, 1, 2].map(() => structuredClone(round));
}

/** @param {number} round @param {number} row */
function violation(round, row) {
  return { round, phase: 2, row, request: row, rule: "mask", slot: 4, model: 0, count: 1 };
}

/**
 * What of the shell a jump uses.
 * @param {any[]} films
 * @returns {any}
 */
function shellOf(films) {
  const comparison = films.length > 1 ? new Comparison(films[0], films[1]) : null;
  const runs = films.map((film, number) => ({ film, number, view: { step: 0, row: 0 } }));
  return {
    comparison,
    runs,
    clock: 0,
    row: 0,
    request: 0,
    said: "",
    pointed: null,
    notice: {
      /** @param {string} words */
      say(words) {
        this.words = words;
      },
      words: "",
    },
    clockOf: (/** @type {any} */ _run, /** @type {number} */ step) => step,
    stepOf: (/** @type {any} */ _run, /** @type {number} */ clock) => clock,
    /** @param {number} clock @param {number} row */
    go(clock, row) {
      Object.assign(this, { clock, row, request: films[0].rows(clock)[row].request });
      for (const run of runs) Object.assign(run.view, { step: clock, row });
    },
    /** @param {any} _run @param {any} place */
    point(_run, place) {
      this.pointed = place;
    },
  };
}

test("events of the tiny run: a rejection and an EOS, whose slot is that of the token", () => {
  const film = tinyFilm();
  const place = { step: 3, row: 0, request: 0, slot: 5, words: "" };
  assert.deepEqual(eventsOf(film, "rejection"), [place]);
  assert.deepEqual(eventsOf(film, "eos"), [place]);
  assert.deepEqual(eventsOf(film, "full"), []);
});

test("violations of a row in a step are one event", () => {
  const film = tinyFilm((json) => {
    twoRows(json);
    json.violations = [violation(1, 1), violation(1, 1), violation(1, 0), violation(0, 1)];
  });
  const places = eventsOf(film, "violation").map(({ step, row, slot }) => [step, row, slot]);
  assert.deepEqual(places, [
    [2, 1, 4],
    [7, 0, 4],
    [7, 1, 4],
  ]);
});

test("a jump to a violation sets step, row and slot, and says which", () => {
  const shell = shellOf([
    tinyFilm((json) => {
      twoRows(json);
      json.violations = [violation(1, 1)];
    }),
  ]);
  jump(shell, "violation", 1);
  assert.deepEqual([shell.clock, shell.row], [7, 1]);
  assert.deepEqual(shell.pointed, { row: 1, slot: 4, index: null });
  assert.equal(shell.notice.words, "Violation (mask): round 1, row 1 (request 1), slot 4.");
});

test("rejections are those of the chosen row", () => {
  const shell = shellOf([tinyFilm(twoRows)]);
  jump(shell, "rejection", 1);
  jump(shell, "rejection", 1);
  assert.deepEqual([shell.clock, shell.row], [8, 0]);
  shell.go(0, 1);
  jump(shell, "rejection", 1);
  assert.deepEqual([shell.clock, shell.row], [0, 1]);
  assert.equal(shell.notice.words, "No later rejection of row 1 (request 1).");
  jump(shell, "full", 1);
  assert.deepEqual([shell.clock, shell.row], [3, 1]);
});

test("a jump without a target says so", () => {
  const shell = shellOf([tinyFilm()]);
  jump(shell, "violation", 1);
  assert.equal(shell.notice.words, "No later violation in this run.");
  jump(shell, "eos", -1);
  assert.equal(shell.notice.words, "No earlier EOS in this run.");
  const unjudged = shellOf([tinyFilm((json) => (json.violations = null))]);
  jump(unjudged, "violation", 1);
  assert.match(unjudged.notice.words, /nothing is judged/);
});

test("the first difference sets the row, and equal texts are said", () => {
  const other = tinyFilm((json) => {
    twoRows(json);
    json.requests[1].tokens[4] = 8;
  });
  const shell = shellOf([tinyFilm(twoRows), other]);
  shell.comparison.words = "They differ there.";
  jumpToDifference(shell);
  assert.deepEqual([shell.clock, shell.row], [3, 1]);
  assert.equal(shell.notice.words, "They differ there.");
  const alike = shellOf([tinyFilm(), tinyFilm()]);
  alike.comparison.words = "They are the same.";
  jumpToDifference(alike);
  assert.equal(alike.notice.words, "They are the same.");
  assert.equal(tinyJson().rounds.length, 1);
});

test("why two runs differ is said once, after that only where", () => {
  const other = tinyFilm((json) => (json.requests[0].tokens[4] = 8));
  const shell = shellOf([tinyFilm(), other]);
  const place = "First difference: request 0, new token 1, round 0 of A";
  shell.comparison.words = `${place}: rounding → p of “.” is 0.4. 1 of 2 texts differs.`;
  jumpToDifference(shell);
  assert.equal(shell.notice.words, shell.comparison.words);
  jumpToDifference(shell);
  assert.equal(shell.notice.words, `${place}.`);
});
