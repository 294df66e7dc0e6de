import assert from "node:assert/strict";
import test from "node:test";
import { Axis } from "../src/map/axis.js";
import { blockIn, GUTTER, MapLayout } from "../src/map/layout.js";
import { aheadAt, leads } from "../src/map/lead.js";
import {
  bothWords,
  describeMap,
  laneHint,
  mapTable,
  roundHint,
  totalsWords,
  winnerWords,
} from "../src/map/words.js";
import { tinyFilm } from "./tiny.js";

const EOS = 2;
const MOVED = 16;
const VIOLATED = 32;

/**
 * Three rounds of two requests, which take 10, 20 and 30 ms. The second request enters in round 1,
 * in which its K/V is copied, and ends with EOS in round 2. K = 2.
 * @param {any} json
 */
function long(json) {
  const [round] = json.rounds;
  const [row] = round.rows;
  /** @type {[request: number, accepted: number, gained: number, length: number][][]} */
  const gains = [[[0, 1, 2, 3]], [[0, 2, 3, 5], [1, 0, 1, 2]], [[1, 2, 2, 3]]]; // prettier-ignore
  const maps = [[[1, 1, 1, 0]], [[2, 1, 0, 4], [0, 1, 2, 1 + MOVED]], [[2, 0, 0, EOS]]]; // prettier-ignore
  json.rounds = gains.map((all, number) => ({
    ...structuredClone(round),
    ms: [0, 4, 5, 1, 0].map((value) => value * (number + 1)),
    bytes: [0, 400, 0][number],
    map: maps[number],
    rows: all.map(([request, accepted, gained, length]) => ({
      ...structuredClone(row),
      ...{ request, accepted, gained, length },
    })),
  }));
  json.requests = [
    { prompt: 3, tokens: [1, 2, 3, 7, 9, 5, 5, 5], origins: "pppababb", budget: 5 },
    { prompt: 2, tokens: [1, 2, 7, 8, 9], origins: "ppbaa", budget: 9 },
  ];
  json.waits = [[1, 0, 1]];
}

const tally = tinyFilm(long).tally;

/** Of one round, in 5 ms. */
const short = tinyFilm().tally;

test("a range adds up to what its rounds do", () => {
  assert.deepEqual(tally.totals(1, 3), {
    first: 1,
    stop: 3,
    tokens: 6,
    accepted: 4,
    verified: 6,
    rows: 3,
    bytes: 400,
    ms: [0, 20, 25, 5, 0],
    all: 50,
  });
  assert.equal(tally.totals(0, 3).tokens, 8);
  assert.equal(tally.totals(2, 2).tokens, 0);
});

test("a row that has ended counts in no rate, and bytes that are not known are null", () => {
  const film = tinyFilm((json) => {
    long(json);
    json.rounds[2].rows[0].gained = 0;
    json.rounds[0].bytes = null;
  });
  const { verified, rows, bytes } = film.tally.totals(0, 3);
  assert.deepEqual([verified, rows, bytes], [6, 3, null]);
});

test("a request has a block for each of its rounds, and what happened in it", () => {
  assert.deepEqual(
    tally.lanes.map((blocks) => blocks.map(({ round }) => round)),
    [
      [0, 1],
      [1, 2],
    ],
  );
  const [entered, ended] = tally.lanes[1];
  assert.deepEqual(
    ["refill", "moved", "eos"].map((name) => tally.has(entered, name)),
    [true, true, false],
  );
  assert.equal(tally.has(ended, "eos"), true);
  assert.equal(tally.block(1, 0), null);
});

test("a token is emitted in the round whose row gains it", () => {
  assert.deepEqual(
    [2, 3, 4, 5, 7, 8].map((index) => tally.roundOf(0, index)),
    [-1, 0, 0, 1, 1, -1],
  );
});

test("by rounds, a place is in the round of its number", () => {
  const axis = new Axis([tally]);
  assert.deepEqual(
    [-0.1, 0, 0.9, 2.5, 3, 9].map((value) => axis.roundAt(tally, value)),
    [-1, 0, 0, 2, 3, 3],
  );
  assert.equal(axis.x(1.5, 300), 150);
  assert.equal(axis.value(150, 300), 1.5);
});

test("by time, rounds are as wide as they took", () => {
  const axis = new Axis([tally]);
  axis.setByTime(true);
  assert.equal(axis.end, 60);
  assert.deepEqual(
    [0, 9.9, 10, 29, 30, 59, 60].map((value) => axis.roundAt(tally, value)),
    [0, 0, 1, 1, 2, 2, 3],
  );
  assert.equal(axis.x(axis.start(tally, 2), 600), 300);
});

test("a log without times is seen by rounds", () => {
  const untimed = tinyFilm((json) => {
    json.rounds[0].ms = [0, 0, 0, 0, 0];
  }).tally;
  const axis = new Axis([untimed]);
  axis.setByTime(true);
  assert.equal(axis.byTime, false);
});

test("a range selects the rounds that lie partly in it", () => {
  const axis = new Axis([tally]);
  assert.deepEqual(axis.roundsIn(tally, [0.2, 1.5]), [0, 2]);
  assert.deepEqual(axis.roundsIn(tally, [1, 2]), [1, 2]);
  assert.deepEqual(axis.roundsIn(tally, [-5, 99]), [0, 3]);
  assert.deepEqual(axis.roundsIn(tally, [4, 9]), [3, 3]);
  axis.setByTime(true);
  assert.deepEqual(axis.roundsIn(tally, [5, 10]), [0, 1]);
  assert.deepEqual(axis.roundsIn(tally, [5, 11]), [0, 2]);
});

test("along the axis lie the phases of a round", () => {
  const axis = new Axis([tally]);
  assert.deepEqual(
    [0, 0.5, 1.99, 2.2, 9].map((value) => axis.stepAt(tally, value)),
    [0, 2, 9, 11, 14],
  );
  axis.setByTime(true);
  // Round 1 drafts from 10 to 18 ms, verifies until 28 and accepts until 30.
  assert.deepEqual(
    [10, 17, 19, 29].map((value) => axis.stepAt(tally, value)),
    [6, 6, 7, 8],
  );
});

/** A run of so many rounds. @param {number} rounds */
function runOf(rounds) {
  return tinyFilm((json) => {
    json.rounds = Array.from({ length: rounds }, () => structuredClone(json.rounds[0]));
  }).tally;
}

test("to zoom keeps a place where it is, down to four rounds and back to all", () => {
  const axis = new Axis([runOf(100)]);
  assert.equal(axis.zoomBy(2, 30), true);
  assert.deepEqual([axis.from, axis.to], [15, 65]);
  assert.equal(axis.x(30, 500), 150);
  axis.zoomBy(1000, 30);
  assert.ok(Math.abs(axis.to - axis.from - 4) < 1e-9);
  assert.ok(Math.abs(axis.x(30, 500) - 150) < 1e-6);
  assert.equal(axis.zoomBy(2, 30), false);
  axis.zoomBy(1e-6, 30);
  assert.deepEqual([axis.from, axis.to, axis.zoomed], [0, 100, false]);
  assert.equal(axis.zoomBy(0.5, 30), false);
});

test("what is seen stays within the run, and slides to what is shown", () => {
  const axis = new Axis([runOf(100)]);
  axis.zoomBy(10, 0);
  axis.panBy(-1);
  assert.deepEqual([axis.from, axis.to], [0, 10]);
  axis.reveal([50, 51]);
  assert.ok(axis.from <= 50 && axis.to >= 51);
  axis.panBy(99);
  assert.ok(Math.abs(axis.to - 100) < 1e-9 && Math.abs(axis.from - 90) < 1e-9);
});

test("the numbers of the axis are round, apart, and whole where they are rounds", () => {
  const axis = new Axis([runOf(100)]);
  assert.deepEqual(axis.ticks(640), [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
  axis.zoomBy(25, 0);
  assert.deepEqual(axis.ticks(2000), [0, 1, 2, 3, 4]);
});

test("rounds that are seen stay in sight when the axis changes", () => {
  const axis = new Axis([runOf(100)]);
  axis.zoomBy(10, 50);
  const before = axis.roundsIn(axis.tallies[0], [axis.from, axis.to]);
  axis.setByTime(true);
  assert.deepEqual(axis.roundsIn(axis.tallies[0], [axis.from, axis.to]), before);
});

/** @param {number[]} counts of requests, for each run */
function laid(...counts) {
  return counts.map((count) => ({ count, first: 0, timed: true, copies: true }));
}

test("eight lanes are 11 px high, 64 are condensed, and the map stays low", () => {
  const [eight, many, more] = [8, 64, 500].map((count) => new MapLayout(1200, laid(count)));
  assert.deepEqual([eight.pitch, many.pitch, more.pitch], [11, 3, 3]);
  assert.ok(eight.height < 150 && many.height < 260 && more.height === many.height);
  assert.equal(many.groups[0].shown, 64);
  assert.equal(more.groups[0].shown, 64);
  const two = new MapLayout(1200, laid(64, 64));
  assert.deepEqual([two.pitch, two.groups[1].shown], [2, 64]);
  assert.ok(two.height < 460);
});

test("every lane is found under its own pixels", () => {
  for (const counts of [[8], [64], [8, 8], [64, 64]]) {
    const layout = new MapLayout(1200, laid(...counts));
    counts.forEach((count, run) => {
      for (let request = 0; request < count; request++) {
        const y = /** @type {number} */ (layout.laneY(run, request));
        const { h } = blockIn(layout.pitch);
        for (const inside of [y, y + h - 0.5])
          assert.deepEqual(layout.under(inside), { part: "lane", run, request });
      }
    });
    assert.equal(layout.under(layout.ruler + 2).part, "ruler");
    assert.equal(layout.under(layout.groups[0].time + 2).part, "time");
    if (counts.length > 1) assert.equal(layout.under((layout.lead ?? 0) + 2).part, "lead");
  }
  assert.ok(new MapLayout(300, laid(8)).room + GUTTER < 300);
});

test("lanes that do not fit slide to the chosen one", () => {
  const [run] = laid(500);
  const layout = new MapLayout(1200, [run]);
  assert.equal(layout.laneY(0, 70), null);
  const first = layout.firstFor(0, 70);
  assert.equal(first, 7);
  const moved = new MapLayout(1200, [{ ...run, first }]);
  assert.notEqual(moved.laneY(0, 70), null);
  assert.equal(moved.firstFor(0, 3), 3);
  assert.equal(new MapLayout(1200, [{ ...run, first: 9999 }]).groups[0].first, 436);
});

test("a run is ahead while it has more tokens", () => {
  const axis = new Axis([tally, short]);
  axis.setByTime(true);
  assert.deepEqual(
    [0, 5, 10, 30, 60].map((value) => aheadAt(axis, axis.tallies, value)),
    [0, -2, 0, 4, 6],
  );
  const spans = leads(axis, axis.tallies);
  assert.deepEqual(
    spans.map(({ from, to, ahead }) => [from, to, ahead]),
    [
      [0, 5, 0],
      [5, 10, -2],
      [10, 30, 0],
      [30, 60, 4],
    ],
  );
});

test("the words of a lane say what happened, and who waits", () => {
  assert.equal(laneHint(tally, 0, 0), "request 0, round 0: 1 draft accepted, bonus, 1 thrown away");
  assert.equal(laneHint(tally, 1, 0), "request 1 waits: round 0");
  assert.equal(
    laneHint(tally, 1, 1),
    "request 1, round 1: bonus, 2 thrown away; enters the batch; K/V copied",
  );
  assert.match(laneHint(tally, 1, 2) ?? "", /2 drafts accepted; ends with EOS$/);
  assert.equal(laneHint(tally, 0, 2), null);
});

test("the words of a range are its totals", () => {
  const { head, words } = totalsWords(tally, tally.totals(1, 3));
  assert.equal(head, "rounds 1–2");
  assert.equal(
    words,
    "6 tokens · 67 % of drafts accepted · mean acceptance length 2.33 · 50.0 ms: schedule 0, " +
      "draft 20.0, verify 25.0, accept 5.0, synchronise 0 · 0.4 kB of K/V copied",
  );
  assert.equal(totalsWords(tally, tally.totals(0, 3)).head, "all 3 rounds");
});

test("the parts of a long time keep their units", () => {
  const slow = tinyFilm((json) => {
    long(json);
    json.rounds[1].ms = [0, 300, 12_300, 0.5, 0];
  }).tally;
  const { words } = totalsWords(slow, slow.totals(1, 2));
  assert.match(
    words,
    /· 12\.6 s: schedule 0 ms, draft 300 ms, verify 12\.3 s, accept 0\.5 ms, synchronise 0 ms ·/,
  );
  assert.match(roundHint(slow, 1), /^round 1: 12\.6 s, .* verify 12\.3 s/);
});

test("the axis of a long run is in seconds, that of a part in what tells its numbers apart", () => {
  const film = tinyFilm((json) => {
    long(json);
    json.rounds[2].ms = [0, 0, 20_000, 0, 0];
  });
  const axis = new Axis([film.tally]);
  axis.setByTime(true);
  const labels = () => axis.ticks(640).map((value) => axis.label(value, 640));
  assert.deepEqual(labels().slice(0, 4), ["0 s", "5 s", "10 s", "15 s"]);
  [axis.from, axis.to] = [12_345, 12_355];
  assert.deepEqual(labels().slice(0, 3), ["12.345 s", "12.346 s", "12.347 s"]);
  [axis.from, axis.to] = [0, 5];
  assert.deepEqual(labels().slice(0, 3), ["0 ms", "0.5 ms", "1 ms"]);
});

test("of two runs it is said which one is faster", () => {
  assert.equal(
    winnerWords([tally, short], ["slow", "fast"]),
    "The second run (fast) ends first: 5.0 ms against 60.0 ms, 92 % less; " +
      "the second takes 1 round, the other 3.",
  );
  assert.match(describeMap([tally, short], ["slow", "fast"]), /The second run, fast: 1 request,/);
});

/**
 * A lane of the same rounds, which begin a while after one another.
 * @param {number} lane
 * @param {number} first when it begins
 */
const laneTally = (lane, first) =>
  tinyFilm((json) => {
    long(json);
    json.meta.lane = lane;
    json.begins = [0, 25, 50].map((begin, round) => [
      first + begin,
      first + begin + 2, // after 2 ms of waiting
      ...[4, 9, 10].map((ms) => first + begin + 2 + ms * (round + 1)),
    ]);
  }).tally;

test("lanes stand on one clock, with the time in which they wait", () => {
  const lanes = [laneTally(0, 0), laneTally(1, 12)];
  assert.deepEqual(lanes[1].starts, [12, 37, 62, 94]);
  assert.deepEqual(lanes[1].phaseEnds(0), [0, 6, 11, 12, 12]);
  assert.equal(lanes[1].totals(0, 3).all, 60);
  const axis = new Axis(lanes);
  axis.setByTime(true);
  assert.deepEqual(
    [11, 12, 36, 37, 94].map((value) => axis.roundAt(lanes[1], value)),
    [-1, 0, 0, 1, 3],
  );
  // In the draft, in the verification, and in the bubble after the round's last phase.
  assert.deepEqual(
    [12, 15, 19, 30].map((value) => axis.stepAt(lanes[1], value)),
    [1, 1, 2, 4],
  );
  assert.equal(
    bothWords(lanes, []),
    "Both lanes take 94.0 ms on one clock; lane 0 waits 36 % of it, lane 1 waits 36 % of it.",
  );
  assert.equal(bothWords([tally], []), "");
  assert.deepEqual(
    mapTable(lanes, "").rows.map(([name]) => name),
    ["lane 0", "lane 0", "lane 1", "lane 1"],
  );
  const runs = lanes.map(() => ({ count: 2, first: 0, timed: true, copies: false }));
  assert.equal(new MapLayout(800, runs, false, true).lead, null);
  assert.notEqual(new MapLayout(800, runs).lead, null);
});

test("the table has a line for each request, and violations only where runs are judged", () => {
  const broken = tinyFilm((json) => {
    long(json);
    json.rounds[1].map[1][3] += VIOLATED;
  }).tally;
  const table = mapTable([broken], "");
  assert.deepEqual(table.rows[1], [1, "rounds 1–2", 1, 3, 2, 1, 2, 1, 1, "EOS"]);
  const plain = tinyFilm((json) => {
    json.violations = null;
  }).tally;
  assert.ok(!mapTable([plain], "").head.includes("violations"));
  assert.equal(mapTable([tally, short], "").rows.length, 3);
});
