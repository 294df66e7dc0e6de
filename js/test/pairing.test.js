// Which rows of two runs belong together, what differs between them, and where they are drawn.

import assert from "node:assert/strict";
import test from "node:test";
import { greyed } from "../src/draw/palette.js";
import { SvgPen } from "../src/draw/svg.js";
import { Comparison } from "../src/film/compare.js";
import { absence, differing, mostLines, mostPairs, pairsAt } from "../src/film/pairing.js";
import { differingBoxes, sameGain } from "../src/panels/pairboxes.js";
import { PairLayout } from "../src/panels/pairlayout.js";
import { pairTable } from "../src/panels/pairtable.js";
import { tinyFilm } from "./tiny.js";

const SYNCHRONISE = 4;

/**
 * Its rows in each round, by request.
 * @param {number[][]} rounds
 */
function batches(...rounds) {
  return (/** @type {any} */ json) => {
    const [round] = json.rounds;
    json.rounds = rounds.map((requests) => ({
      ...structuredClone(round),
      rows: requests.map((request) => ({ ...structuredClone(round.rows[0]), request })),
      stages: structuredClone(round.stages).map((/** @type {any} */ stage) => {
        for (const name of ["tokens", "target", "draft"])
          stage[name] = requests.map(() => stage[name][0]);
        return stage;
      }),
    }));
    json.requests = [0, 1, 2, 3].map(() => structuredClone(json.requests[0]));
  };
}

/** Every slot lies one further to the right. @param {any} json */
function shifted(json) {
  for (const lane of json.lanes)
    for (const run of lane.filter((/** @type {any} */ each) => Array.isArray(each)))
      for (const at of [0, 1]) run[at] += run[2] === 1 && at === 0 ? 0 : 1;
  for (const row of json.rounds[0].rows)
    for (const name of ["start", "start_after", "pending", "pending_after"]) row[name] += 1;
}

/** @param {any} json */
function shiftedBatch(json) {
  shifted(json);
  batches([0])(json);
}

/** A draft is another token. @param {any} json */
function otherDraft(json) {
  json.lanes[1][2][6] = [3, 8, 8];
}

/**
 * @param {any[]} films
 * @param {number} step
 * @param {Record<string, any>} [more]
 * @returns {any[]}
 */
function viewsOf(films, step, more = {}) {
  const comparison = new Comparison(films[0], films[1]);
  const still = { zoom: null, pan: 0, turn: 0, tall: null, room: null, dense: 0, hover: null };
  /** @type {any[]} */
  const views = films.map((film, n) => ({
    film,
    step,
    row: 0,
    other: films[1 - n],
    ...still,
    ...more,
  }));
  views.forEach((view, number) => {
    view.pair = { number, views, names: ["A", "B"], comparison };
  });
  return views;
}

/**
 * @param {any[]} films
 * @param {number} step
 * @param {Record<string, any>} [more]
 * @param {number} [width]
 */
function layoutsOf(films, step, more = {}, width = 700) {
  return viewsOf(films, step, more).map((view) => new PairLayout(view, width));
}

/**
 * @param {any} films
 * @param {boolean} byPosition
 */
function placesOf(films, byPosition) {
  const lanes = films.map((/** @type {any} */ film) => film.lane(2, "tokens", 0));
  return differing(films, lanes, byPosition).map(({ place }) => place);
}

test("rows are paired by request, in the order of the first run", () => {
  const films = [tinyFilm(batches([2, 0, 1])), tinyFilm(batches([0, 3, 2]))];
  assert.deepEqual(pairsAt(films, [0, 0]), [
    { request: 2, rows: [0, 2] },
    { request: 0, rows: [1, 0] },
    { request: 1, rows: [2, -1] },
    { request: 3, rows: [-1, 1] },
  ]);
  assert.equal(mostPairs(new Comparison(films[0], films[1])), 4);
});

test("why a request has no row in a run", () => {
  const film = tinyFilm(batches([0, 1], [1], [0, 2]));
  const words = [0, 1, 2, 3].map((request) => absence(film, 5, request));
  assert.deepEqual(words, ["waits", "waits", "enters in round 2", "never in the batch"]);
  assert.equal(absence(film, 10, 1), "ended in round 1");
});

test("a run does not differ from itself, by slots or by positions", () => {
  for (const byPosition of [false, true])
    assert.deepEqual(placesOf([tinyFilm(), tinyFilm()], byPosition), []);
});

test("only the place of another token differs", () => {
  const films = [tinyFilm(), tinyFilm(otherDraft)];
  assert.deepEqual(placesOf(films, false), [4], "the slot of the first draft");
  assert.deepEqual(placesOf(films, true), [3], "its position");
});

test("a row that lies elsewhere differs by slots, and not by positions", () => {
  const films = [tinyFilm(), tinyFilm(shifted)];
  assert.deepEqual(placesOf(films, true), []);
  assert.ok(placesOf(films, false).length >= 5);
});

test("the same token in another state differs", () => {
  const stale = tinyFilm((json) => (json.lanes[1][3][2] = 3));
  assert.deepEqual(placesOf([tinyFilm(), stale], false), [6]);
});

for (const width of [390, 700, 1280])
  for (const turn of [0, 1])
    test(`paired rows have one axis and touch: ${width} px, turn ${turn}`, () => {
      const films = [tinyFilm(batches([0, 1])), tinyFilm(shiftedBatch)];
      const [first, second] = layoutsOf(films, 2, { turn }, width);
      assert.equal(first.cell, second.cell);
      assert.equal(first.fold, second.fold);
      for (const place of [0, 2, 4, 6])
        assert.equal(first.x(0, place, place), second.x(0, place, place));
      const [lane] = first.lanes;
      assert.equal(second.lanes[0].y, lane.y + lane.height);
      assert.deepEqual(
        second.gaps.map(({ request }) => request),
        [1],
      );
      assert.equal(second.gaps[0].y, first.lanes[1].y + first.lanes[1].height);
    });

test("with little room only the chosen request is open", () => {
  const films = [tinyFilm(batches([0, 1])), tinyFilm(batches([0, 1]))];
  const [all, alone] = [{}, { dense: 1 }].map((more) => layoutsOf(films, 2, more));
  const open = (/** @type {any[]} */ both) => both.map(({ lanes }) => lanes.map((l) => l.open));
  assert.deepEqual(open(all), [
    [true, true],
    [true, true],
  ]);
  assert.deepEqual(open(alone), [
    [true, false],
    [true, false],
  ]);
  assert.ok(alone[1].bottom < all[1].bottom);
});

test("boxes are those of what differs, in both runs", () => {
  const alike = layoutsOf([tinyFilm(), tinyFilm()], 2);
  assert.deepEqual(differingBoxes(alike, 0, [0]), []);
  const both = layoutsOf([tinyFilm(), tinyFilm(otherDraft)], 2);
  const x = both[0].x(0, 4);
  for (const run of [0, 1]) {
    const boxes = differingBoxes(both, run, [0]);
    assert.ok(boxes.length >= 3, "its token, its position, its K/V");
    assert.ok(boxes.every(([left, , w]) => left === x && w === both[run].cell));
  }
});

test("a turned down draft under the last token differs, too", () => {
  const films = [tinyFilm(), tinyFilm((json) => (json.rounds[0].rows[0].drafts[1] = 7))];
  const both = layoutsOf(films, 3);
  const { notes } = both[0].lanes[0];
  assert.ok(notes);
  assert.ok(differingBoxes(both, 0, [0]).some(([, y, , h]) => y === notes.y && h === notes.h));
});

test("rows that gain otherwise are told apart", () => {
  const more = tinyFilm((json) => (json.rounds[0].rows[0].gained = 1));
  assert.equal(sameGain(layoutsOf([tinyFilm(), tinyFilm()], 3), 0), true);
  assert.equal(sameGain(layoutsOf([tinyFilm(), more], 3), 0), false);
  assert.equal(
    sameGain(layoutsOf([tinyFilm(batches([0, 1])), tinyFilm(shiftedBatch)], 3), 1),
    false,
  );
});

test("the table has both runs side by side", () => {
  const views = viewsOf([tinyFilm(), tinyFilm(otherDraft)], 2);
  const { caption, head, rows } = pairTable(views, pairsAt([views[0].film, views[1].film], [2, 2]));
  assert.equal(caption, "Request 0: A beside B, slot by slot");
  assert.deepEqual(head.slice(0, 3), ["slot", "differs", "A token"]);
  const apart = rows.filter((line) => line[1] === "yes");
  assert.equal(apart.length, 1);
  assert.deepEqual([apart[0][0], apart[0][2], apart[0][6]], [4, "seven", "eight"]);
});

test("without colours, a palette keeps its greys", () => {
  const names = "ink muted faint panel page grey greySoft prompt green redSoft target".split(" ");
  const p = Object.fromEntries(names.map((name) => [name, `of ${name}`]));
  const grey = greyed(p);
  assert.equal(grey.green, p.grey);
  assert.equal(grey.redSoft, p.greySoft);
  const pen = new SvgPen(p);
  pen.inColours(grey, () => pen.rect(0, 0, 1, 1, { fill: pen.p.target }));
  assert.equal(pen.p, p);
  assert.match(pen.svg(1, 1, ""), /of grey/);
});

test("an end of a round is paired where its K/V lies by then", () => {
  const [first, second] = layoutsOf([tinyFilm(), tinyFilm(shifted)], SYNCHRONISE);
  assert.equal(first.x(0, 3), second.x(0, 3));
});

test("of two lanes, each request has one row and no words about the other lane", () => {
  const names = [
    [0, 2],
    [1, 3],
  ];
  const films = names.map((requests, lane) =>
    tinyFilm((json) => {
      batches(requests)(json);
      json.meta.lane = lane;
    }),
  );
  const comparison = new Comparison(films[0], films[1]);
  assert.equal(mostLines(comparison), 4);
  for (const dense of [0, 1]) {
    const both = layoutsOf(films, 2, { dense });
    assert.deepEqual(
      both.map(({ gaps }) => gaps),
      [[], []],
    );
    const tops = both.flatMap(({ lanes }) => lanes).sort((a, b) => a.y - b.y);
    tops.slice(1).forEach(({ y }, at) => assert.ok(y >= tops[at].y + tops[at].height));
    const last = /** @type {any} */ (tops.at(-1));
    assert.ok(both[1].bottom >= last.y + last.height);
    // The chosen row of each lane is open.
    assert.ok(both.every(({ lanes }) => lanes[0].open));
  }
});

test("a request that the lanes show at the same time has a row of each", () => {
  const films = [0, 1].map((lane) =>
    tinyFilm((json) => {
      batches([0, 1 + lane])(json);
      json.meta.lane = lane;
    }),
  );
  const [first, second] = layoutsOf(films, 2);
  const [above] = first.lanes;
  assert.equal(second.lanes[0].y, above.y + above.height);
  assert.ok(first.lanes[1].y >= second.lanes[0].y + above.height);
  assert.ok(second.lanes[1].y >= first.lanes[1].y + above.height);
  assert.deepEqual([...first.gaps, ...second.gaps], []);
});
