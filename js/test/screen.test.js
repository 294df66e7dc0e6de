// What fits on a screen, which panel the lens shows, where slots lie, and the stops of the tour.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Comparison } from "../src/film/compare.js";
import { tourOf, unevenRound } from "../src/film/tour.js";
import { fit, mostLines, ROW } from "../src/page/fit.js";
import { chosen } from "../src/page/lens.js";
import { drawStrip } from "../src/panels/fold.js";
import { EnteredPanel } from "../src/panels/entered.js";
import { FramePainter } from "../src/panels/frame.js";
import { GUTTER, LOWEST, RIGHT, StageLayout } from "../src/panels/layout.js";
import { LanePainter } from "../src/panels/lanes.js";
import { MarkPainter } from "../src/panels/marks.js";
import { MovesPanel } from "../src/panels/moves.js";
import { seenAt } from "../src/panels/seen.js";
import { tinyFilm } from "./tiny.js";

/**
 * @param {any} film
 * @param {number} step
 * @param {Record<string, any>} [more]
 * @returns {any}
 */
function viewOf(film, step, more = {}) {
  const still = { zoom: null, pan: 0, turn: 0, tall: null, room: null };
  return { film, step, row: 0, hover: null, other: null, ...still, ...more };
}

test("rows take what the screen leaves, and the map gives way first", () => {
  const at = { rest: 260, legend: 60, map: 230, lowMap: 60, rows: 8, low: null };
  assert.deepEqual(fit({ ...at, frame: 1200 }), {
    low: false,
    tight: false,
    fits: true,
    row: ROW.most,
  });
  assert.deepEqual(fit({ ...at, frame: 800 }), { low: true, tight: false, fits: true, row: 60 });
  assert.deepEqual(fit({ ...at, frame: 500 }), {
    low: true,
    tight: true,
    fits: false,
    row: ROW.least,
  });
  assert.deepEqual(fit({ ...at, frame: 680 }), { low: true, tight: true, fits: true, row: 52 });
  assert.deepEqual(fit({ ...at, frame: 800, low: false }), {
    low: false,
    tight: true,
    fits: true,
    row: ROW.least,
  });
});

test("the longest sentences decide how many lines are reserved", () => {
  const sentences = ["a", "a b c", "a b", ...Array.from({ length: 50 }, (_, n) => `${n}`)];
  let asked = 0;
  const lines = mostLines(sentences, (words) => {
    asked += 1;
    return words.split(" ").length;
  });
  assert.equal(lines, 3);
  assert.ok(asked <= 6);
});

test("the lens follows the phase, until a panel is pinned that has anything to say", () => {
  const entries = [
    { name: "pool", phases: [0], empty: true },
    { name: "rows", phases: [0], empty: false },
    { name: "verify", phases: [1, 3], empty: false },
    { name: "mask", phases: [2], empty: false },
  ];
  const follows = [0, 1, 2, 3].map((phase) => chosen(entries, phase, null));
  assert.deepEqual(follows, ["rows", "verify", "mask", "verify"]);
  assert.equal(chosen(entries, 0, "mask"), "mask");
  assert.equal(chosen(entries, 0, "pool"), "rows");
  assert.equal(chosen([entries[0]], 0, null), null);
});

/** A film whose row has 40 tokens from slot 5 on, in 60 slots. */
function longFilm() {
  const film = tinyFilm();
  const row = film.json.rounds[0].rows[0];
  Object.assign(row, { length: 40, start: 5, start_after: 5, pending: 44, pending_after: 46 });
  const held = film.json.kinds.indexOf("held");
  film.json.requests[0].tokens = Array.from({ length: 50 }, (_, n) => n);
  film.json.requests[0].origins = "p".repeat(3) + "a".repeat(47);
  film.json.lanes.forEach((_, n) => {
    film.json.lanes[n] = [[5, 45, held, 0, 0, 0, 0]];
  });
  film.json.rounds[0].stages.forEach((stage) => Object.assign(stage, { width: 60 }));
  return film;
}

test("the round stands at full width, what is before it is folded, and all of it fits", () => {
  const at = new StageLayout(viewOf(longFilm(), 2), 600);
  assert.ok(at.cell >= 46);
  assert.ok(at.fold > 0 && at.fold < 10);
  assert.ok(at.x(0, 60) <= 600 - RIGHT + 0.01);
  for (const slot of [44, 45, 46])
    assert.ok(Math.abs(at.x(0, slot + 1) - at.x(0, slot) - at.cell) < 1e-6);
  assert.ok(Math.abs(at.x(0, 6) - at.x(0, 5) - at.fold) < 1e-6);
  for (const slot of [2, 20, 44, 46, 59])
    assert.equal(at.slotAt(0, (at.x(0, slot) + at.x(0, slot + 1)) / 2), slot);
});

test("where all slots have room for a token's text, nothing is folded", () => {
  const at = new StageLayout(viewOf(tinyFilm(), 2), 900);
  assert.equal(at.fold, 0);
  assert.equal(at.count, at.last);
});

test("by positions a row begins at 0, on the way it lies between", () => {
  const film = longFilm();
  const [slots, half, positions] = [0, 0.5, 1].map(
    (turn) => new StageLayout(viewOf(film, 2, { turn }), 600),
  );
  assert.equal(positions.x(0, 5), GUTTER);
  assert.equal(positions.slotAt(0, positions.x(0, 44) + 1), 44);
  const shift = slots.x(0, 44) - positions.x(0, 44);
  assert.ok(Math.abs(shift - 5 * slots.fold) < 1e-6);
  assert.ok(Math.abs(half.x(0, 44) - positions.x(0, 44) - shift / 2) < 1e-6);
});

test("the batch is as high in a round with fewer rows", () => {
  const film = longFilm();
  const high = new StageLayout(viewOf(film, 2), 600).height;
  film.mostRows = 4;
  const view = viewOf(film, 2);
  const four = new StageLayout(view, 600).height;
  assert.ok(four > high);
  const [row] = film.json.rounds[0].rows;
  film.json.rounds[0].rows = [row, row, row, row];
  for (const stage of film.json.rounds[0].stages)
    for (const name of ["tokens", "target", "draft", "lengths", "starts", "pending"])
      /** @type {any} */ (stage)[name] = Array(4).fill(/** @type {any} */ (stage)[name][0]);
  assert.equal(new StageLayout(view, 600).height, four);
});

test("the legend has what a step shows", () => {
  const film = tinyFilm();
  const [schedule, verify] = [0, 2].map((step) => seenAt(film, step));
  assert.ok(!schedule.has("written") && verify.has("written"));
  assert.ok(verify.has("p"));
  assert.ok(!verify.has("moved") && !verify.has("violation"));
});

test("the legend has K/V, differences and what a log lacks only where cells show them", () => {
  const film = tinyFilm((json) => {
    json.lanes.push([[0, 6, 1, -1, -1, -1, 0]], []);
    json.rounds[0].stages[0].draft = [2];
    json.rounds[0].stages[1].tokens = json.rounds[0].stages[1].target = [3];
  });
  const [schedule, draft] = [0, 1].map((step) => seenAt(film, step));
  assert.ok(schedule.has("target") && !schedule.has("draft") && schedule.has("gap"));
  assert.ok(!draft.has("target") && draft.has("draft") && !draft.has("gap"));
  const same = new Comparison(tinyFilm(), tinyFilm());
  const other = new Comparison(
    tinyFilm(),
    tinyFilm((json) => (json.requests[0].tokens[3] = 8)),
  );
  /** @param {Comparison} comparison */
  const differing = (comparison) =>
    [0, 1, 2, 3, 4].filter((step) => seenAt(tinyFilm(), step, comparison).has("differs"));
  assert.deepEqual(differing(same), []);
  assert.deepEqual(differing(other), []); // the token that differs is not committed in the lanes
  const [first] = other.films;
  first.json.lanes[1] = [[0, 4, 2, 0, 0, 0, 0]];
  assert.deepEqual(
    [0, 1, 2, 3, 4].filter((step) => seenAt(first, step, other).has("differs")),
    [2, 3, 4],
  );
});

test("under a row that moved nothing hangs where its label stands", () => {
  for (const by of [0, 2]) {
    const film = tinyFilm((json) => {
      json.kinds.push("unreached_now");
      json.lanes[1][3][2] = json.kinds.length - 1; // the slot behind the drafts
      if (by) json.rounds[0].stages[4].moves = [[0, 0, 0, 1, 0, 1 + by, 3]];
    });
    const at = new StageLayout(viewOf(film, 4, { tall: 60, progress: 1 }), 800);
    const { notes } = at.lanes[0];
    /** @type {[string, string | null][]} */
    const drawn = [];
    let who = "lanes";
    /** @type {any} */
    const pen = new Proxy(
      { p: new Proxy({}, { get: () => "#000" }), measure: () => 10 },
      {
        get: (own, name) =>
          Reflect.get(own, name) ??
          ((/** @type {any[]} */ ...of) => {
            const text = name === "text" ? of[0] : null;
            const top = text === null ? of[1] : of[2];
            if (notes && top >= notes.y && top <= notes.y + notes.h) drawn.push([who, text]);
          }),
      },
    );
    const marks = new MarkPainter(pen, at);
    new LanePainter(pen, at).paint([0], marks.moved);
    who = "marks";
    marks.motion(at.rows[0], 0);
    marks.rejection(at.rows[0], 0);
    assert.ok(notes);
    assert.equal(
      drawn.some(([by]) => by === "lanes"),
      by === 0,
      "what was thrown away",
    );
    assert.equal(
      drawn.some(([, text]) => text === "moved 2 right"),
      by === 2,
    );
  }
});

test("who entered, and where rows end", () => {
  const film = tinyFilm();
  assert.match(new EnteredPanel(viewOf(film, 0)).title(), /round 0 · 1 request entered$/);
  const [line] = new EnteredPanel(viewOf(film, 0)).table().rows;
  assert.equal(line.at(-1), "enters now");
  const moves = new MovesPanel(viewOf(film, 4));
  assert.match(moves.title(), /0 rows moved$/);
  assert.deepEqual(moves.table().rows, [[0, 0, "3 → 5", 4, "stays"]]);
  const copied = tinyFilm((json) => {
    json.rounds[0].bytes = 2000;
  });
  const { caption } = new MovesPanel(viewOf(copied, 4)).table();
  assert.match(caption, /copied in this round, within rows\.$/);
  assert.match(new MovesPanel(viewOf(film, 1)).title(), /before it is synchronised$/);
});

test("the tour has seven stops in the most uneven round", () => {
  const film = tinyFilm();
  assert.equal(unevenRound(film), 0);
  const stops = tourOf(film);
  assert.equal(stops.length, 7);
  assert.deepEqual(
    stops.map(({ step }) => step),
    [0, 0, 1, 2, 3, 3, 4],
  );
  assert.match(stops[4].words, /Row 0 gained most: 2 tokens/);
  assert.equal(stops[5].turned, 1);
  assert.match(stops[6].words, /Nothing moves here/);
  for (const { words } of stops) assert.doesNotMatch(words, /undefined|NaN/);
});

test("compact rows tell accepted, bonus and thrown away without colours", () => {
  /** @param {string} kind */
  const boxes = (kind) => {
    /** @type {any[]} */
    const drawn = [];
    /** @type {any} */
    const pen = {
      p: { orange: "o", bonus: "b", page: "w" },
      rect: (/** @type {number[]} */ ...at) => drawn.push(at.slice(0, 4)),
    };
    drawStrip(pen, { strip: "x" }, kind, { x: 10, y: 5, w: 20, h: 8 }, 20);
    return drawn;
  };
  assert.deepEqual(boxes("accepted_now"), [[10, 5, 20, 8]]);
  assert.deepEqual(boxes("rejected_now"), [[10, 10, 20, 3]]);
  const [bonus, hole] = boxes("bonus_now");
  assert.deepEqual(bonus, [11, 5, 19, 8]);
  assert.ok(hole[2] === 3 && hole[3] === 3);
});

test("what hangs below a row leaves its positions free, and its K/V ends within the row", () => {
  const film = tinyFilm();
  for (const tall of [LOWEST, 52, 60, 68]) {
    const [lane] = new StageLayout(viewOf(film, 3, { tall }), 800).lanes;
    const { notes, positions, draft } = lane;
    assert.ok(notes && positions);
    assert.ok(positions.y - (notes.y + notes.h) >= 2);
    assert.ok(draft.y + draft.h <= lane.y + lane.height);
  }
});

/**
 * What is written on the axis: the words, with the px from and to which each reaches.
 * @param {any} film
 * @param {number} width
 */
function axisOf(film, width) {
  /** @type {{ text: string, from: number, to: number }[]} */
  const written = [];
  const pen = {
    p: {},
    measure: (/** @type {string} */ text) => text.length * 5.5,
    line: () => {},
    text: (/** @type {string} */ text, /** @type {number} */ x, /** @type {number} */ _, look) => {
      const w = text.length * 5.5;
      const from = { left: x, center: x - w / 2, right: x - w }[look.align ?? "left"] ?? x;
      written.push({ text, from, to: from + w });
    },
  };
  const at = new StageLayout(viewOf(film, 2), width);
  new FramePainter(/** @type {any} */ (pen), at).axis();
  new MarkPainter(/** @type {any} */ (pen), at).begin();
  return { written, at };
}

test("the slots of drafts keep their numbers, and no word lies over another", () => {
  const { written, at } = axisOf(longFilm(), 600);
  const word = written.find(({ text }) => text === "drafts →");
  assert.ok(word && word.to <= at.x(0, at.begin(at.rows[0]) + 1));
  const numbers = written.map(({ text }) => text);
  for (let slot = at.begin(at.rows[0]) + 1; slot < at.firsts[0] + at.count; slot += 1)
    assert.ok(numbers.includes(String(slot)), `slot ${slot} among ${numbers}`);
  const inOrder = written.toSorted((a, b) => a.from - b.from);
  for (let i = 1; i < inOrder.length; i += 1)
    assert.ok(inOrder[i].from >= inOrder[i - 1].to, JSON.stringify(inOrder));
});

test("where there is no room before the drafts, the word stands over them", () => {
  const narrow = tinyFilm((json) => {
    for (const stage of json.rounds[0].stages) stage.width = 12;
  });
  const { written, at } = axisOf(narrow, 256);
  const word = written.find(({ text }) => text === "drafts →");
  const begin = at.x(0, at.begin(at.rows[0]) + 1);
  assert.ok(word && word.from >= begin);
  for (const { text, from, to } of written)
    if (/^[1-9]/.test(text)) assert.ok(to <= word.from || from >= word.to, text);
});
