import assert from "node:assert/strict";
import test from "node:test";
import { Comparison } from "../src/film/compare.js";
import { tinyFilm } from "./tiny.js";

/** Two rounds, of one token each. @param {any} json */
function slow(json) {
  const [round] = json.rounds;
  const rows = [
    { ...round.rows[0], gained: 1, emitted: [7] },
    { ...round.rows[0], length: 4, gained: 1, emitted: [9] },
  ];
  json.rounds = rows.map((row) => ({ ...structuredClone(round), rows: [row] }));
}

test("equal texts never part", () => {
  const comparison = new Comparison(tinyFilm(), tinyFilm());
  assert.equal(comparison.first, null);
});

test("the first difference is where the first run emits it", () => {
  const other = tinyFilm((json) => {
    json.requests[0].tokens[4] = 8;
  });
  const comparison = new Comparison(tinyFilm(), other, "as Python says");
  assert.deepEqual(comparison.first, { request: 0, index: 4, step: 3 });
  assert.equal(comparison.words, "as Python says");
});

test("by rounds, the shorter run stays at its last round", () => {
  const comparison = new Comparison(tinyFilm(), tinyFilm(slow));
  assert.equal(comparison.clocks, 10);
  assert.deepEqual(
    [0, 4, 7].map((clock) => comparison.stepOf(0, clock)),
    [0, 4, 2],
  );
  assert.equal(comparison.over(0, 7), true);
});

test("by tokens, a run waits for the other one", () => {
  const comparison = new Comparison(tinyFilm(slow), tinyFilm());
  comparison.byTokens = true;
  assert.equal(comparison.stepOf(1, 7), 2);
  assert.equal(comparison.clockOf(1, 3), 3);
});

test("lanes of one run are not compared", () => {
  const lanes = [0, 1].map((lane) =>
    tinyFilm((json) => {
      json.meta.lane = lane;
      json.requests[0].tokens[4] = 8 + lane;
    }),
  );
  const comparison = new Comparison(lanes[0], lanes[1]);
  assert.equal(comparison.lanes, true);
  assert.equal(comparison.first, null);
  assert.equal(comparison.differs(0, 4), false);
  assert.equal(new Comparison(lanes[0], lanes[0]).lanes, false);
});
