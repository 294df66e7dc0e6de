import assert from "node:assert/strict";
import test from "node:test";
import { draftCards } from "../src/film/cards.js";
import { maskCells } from "../src/film/sight.js";
import {
  branches,
  compacted,
  draftAt,
  hasTrees,
  isFull,
  lineOf,
  slotsOf,
  treeNodes,
} from "../src/film/tree.js";
import { drawBranch, drawCompaction } from "../src/panels/branch.js";
import { TreePanel } from "../src/panels/tree.js";
import { OWN, ROOT, TreeLayout } from "../src/panels/treelayout.js";
import { tinyFilm } from "./tiny.js";

// As Python writes it: the pending token in slot 3, four drafts behind it, of which d1 and d3 are
// accepted; d3 moves from slot 6 to slot 5. d2 is rejected for d1, d4 follows d2.
/** @param {(json: any) => void} [change] */
function branching(change = () => {}) {
  return tinyFilm((json) => {
    const [round] = json.rounds;
    Object.assign(round.rows[0], {
      drafted: 4,
      verified: 4,
      accepted: 2,
      gained: 3,
      pending_after: 6,
      end: 6,
      drafts: [7, 8, 10, 7],
      emitted: [7, 10, 9],
      parents: [-1, -1, 0, 1],
      path: [0, 2],
      q: [0.5, 0.25, 0.5, 0.125],
      p: [0.75, 0.1, 0.6, 0.3],
      target: [[[7, 0.75]], [[10, 0.6]], [[4, 0.5]], [[9, 0.9]], [[4, 0.2]]],
      draft: [[[7, 0.5]], [[7, 0.5]], [[10, 0.5]], [[7, 0.125]]],
      fates: [1, 2, 1, 8, 3],
    });
    json.texts[10] = "ten";
    json.requests[0].tokens = [1, 2, 3, 7, 10, 9];
    json.requests[0].origins = "pppaab";
    json.kinds.push("accepted_now", "bonus_now", "rejected_now", "unreached_now");
    json.lanes = [
      // before the drafts, with the drafts, and after the acceptance
      [
        [0, 1, 1, -1, -1, -1, 0],
        [1, 3, 2, 0, 0, 0, 0],
        [3, 4, 5, 2, 2, 0, 0],
      ],
      [
        [0, 1, 1, -1, -1, -1, 0],
        [1, 4, 2, 0, 0, 0, 0],
        [4, 5, 3, 3, 3, 0, [7]],
        [5, 6, 3, 3, 3, 0, [8]],
        [6, 7, 3, 4, 4, 0, [10]],
        [7, 8, 3, 4, 4, 0, [7]],
      ],
      [
        [0, 1, 1, -1, -1, -1, 0],
        [1, 4, 2, 0, 0, 0, 0],
        [4, 6, 6, 3, 3, 0, 0],
        [6, 7, 7, 5, 5, 0, 0],
        [7, 8, 9, 4, 4, 0, [7]],
      ],
    ];
    round.stages.forEach((/** @type {any} */ stage, /** @type {number} */ phase) => {
      const lane = [0, 1, 1, 2, 2][phase];
      Object.assign(stage, { tokens: [lane], target: [lane], draft: [lane], width: 8, feeds: [] });
    });
    // Each draft sees its own branch.
    json.holes = [
      [],
      [[4, 5]],
      [[5, 6]],
      [
        [4, 5],
        [6, 7],
      ],
    ];
    round.slots = 8;
    round.stages[2].feeds = [
      [0, 0, 0, 3, 1, 2, 2, 1, 4, 0, 0],
      [0, 0, 0, 4, 1, 3, 3, 1, 5, 0, 1],
      [0, 0, 0, 5, 1, 3, 3, 1, 6, 1, 2],
      [0, 0, 0, 6, 1, 4, 4, 1, 7, 2, 3],
      [0, 0, 0, 7, 1, 4, 4, 1, 8, 3, 4],
    ];
    round.stages[3].moves = [
      [0, 0, 0, 6, 0, 5, 1],
      [1, 0, 0, 7, 0, 5, 1],
    ];
    change(json);
  });
}

/**
 * @param {ReturnType<typeof tinyFilm>} film
 * @param {number} step
 * @returns {any}
 */
function viewOf(film, step) {
  return { film, step, row: 0, hover: null, palette: {}, differs: () => false };
}

test("a chain is the tree in which each draft follows the one before", () => {
  const [chain] = tinyFilm().rows(3);
  const [tree] = branching().rows(3);
  assert.deepEqual([hasTrees(tinyFilm()), hasTrees(branching())], [false, true]);
  assert.deepEqual([branches(chain), branches(tree)], [false, true]);
  assert.deepEqual(lineOf(chain, 1), [0, 1]);
  assert.deepEqual(
    [lineOf(tree, 2), lineOf(tree, 3)],
    [
      [0, 2],
      [1, 3],
    ],
  );
  assert.deepEqual([isFull(chain), isFull(tree)], [false, true]);
});

test("drafts lie where they were read, and accepted ones where they have moved to", () => {
  const film = branching();
  assert.deepEqual(slotsOf(film, 1, 0), [4, 5, 6, 7]);
  assert.deepEqual(slotsOf(film, 3, 0), [4, null, 5, 7]);
  assert.deepEqual([...compacted(film, 3, 0)], [[6, 5]]);
  assert.equal(draftAt(film, 2, 0, { row: 0, slot: 6, index: 4 }), 2);
  assert.equal(draftAt(film, 3, 0, { row: 0, slot: 5, index: 4 }), 2);
  assert.equal(draftAt(film, 3, 0, { row: 0, slot: null, index: 3, draft: 1 }), 1);
  assert.equal(draftAt(film, 3, 0, { row: 1, slot: 5, index: 4 }), -1);
});

test("a node knows its rank among those of one parent", () => {
  assert.deepEqual(treeNodes(branching(), 0, 0), []);
  assert.deepEqual(
    treeNodes(branching(), 2, 0).map((node) => [node.depth, node.rank, node.siblings]),
    [
      [1, 1, 2],
      [1, 2, 2],
      [2, 1, 1],
      [2, 1, 1],
    ],
  );
});

test("cards of a tree say which branch was taken", () => {
  const cards = draftCards(branching(), 3, 0);
  assert.deepEqual(
    cards.map((card) => `${card.name} ${card.index} ${card.fate}: ${card.words}`),
    [
      "d1 3 accepted: accepted: the target's first choice",
      "d2 3 rejected: rejected: the target says ‘\u2068seven\u2069’ (d1)",
      "d3 4 accepted: accepted: the target's first choice",
      "d4 4 unreached: not reached: it follows d2",
      "bonus 5 bonus: the target's first choice after d3",
    ],
  );
  assert.deepEqual(
    cards.map((card) => [card.emitted, card.own, card.targetChoices[0][0]]),
    [
      [7, false, 7],
      [null, false, 7],
      [10, false, 10],
      [null, false, 4],
      [9, true, 9],
    ],
  );
});

test("a query of the mask is named by its draft, and faults go by draft", () => {
  const film = branching((json) => {
    json.rounds[0].stages[2].faults = [[0, 0, 4, 1, [[5, 6]], [], 0, 3]];
  });
  const { queries } = /** @type {any} */ (maskCells(film, 2, 0));
  const names = queries.map((/** @type {any} */ query) => query.name);
  assert.deepEqual(names, ["pending", "d1", "d2", "d3", "d4"]);
  const wrong = queries.map((/** @type {any} */ { segments }) =>
    segments.some((/** @type {any} */ each) => each[2] === "leak"),
  );
  assert.deepEqual(wrong, [false, false, false, true, false]);
});

test("parents stand left of their children, each branch in a line of its own", () => {
  const [entry] = branching().rows(3);
  const at = new TreeLayout(entry, { last: 2, gained: true }, 500);
  const place = (/** @type {number} */ n) => /** @type {any} */ (at.place(n));
  assert.equal(at.lines, 2);
  assert.equal(place(OWN).x > place(2).x && place(2).x > place(0).x, true);
  assert.equal(place(0).x > place(ROOT).x, true);
  assert.equal(place(0).y, place(OWN).y);
  assert.equal(place(1).y > place(0).y, true);
  assert.equal(place(ROOT).y > place(0).y && place(ROOT).y < place(1).y, true);
  assert.equal(at.at(place(3).x + 2, place(3).y)?.number, 3);
  assert.equal(at.at(place(3).x - 3, place(3).y), null);
});

test("the panel says the same in words, in a table and to the arrow keys", () => {
  const panel = new TreePanel(viewOf(branching(), 3));
  assert.equal(panel.empty(), false);
  assert.equal(new TreePanel(viewOf(tinyFilm(), 3)).empty(), true);
  assert.match(panel.title(), /4 drafts on 2 branches, 2 deep$/);
  assert.match(
    panel.describe(),
    /Accepted: d1 .*, d3 .*; then the target's own ‘\u2068nine\u2069’/,
  );
  const [first, , third] = panel.table().rows;
  assert.deepEqual(first.slice(0, 5), ["d1", "pending", 1, "seven", "1 of 2"]);
  assert.equal(third[7], 5);
  const { view } = panel;
  const visited = ["ArrowDown", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"].map((key) => {
    view.hover = panel.steer(key);
    return view.hover?.draft;
  });
  assert.deepEqual(visited, [0, 2, 3, 1, 0]);
  assert.equal(panel.steer("x"), null);
});

test("an arrow for each slot of the target that moves in the acceptance, and for no other", () => {
  /** @param {number} step */
  const drawn = (step) => {
    /** @type {number[][]} */
    const lines = [];
    const pen = { p: {}, line: (/** @type {number[]} */ ...at) => lines.push(at.slice(0, 4)) };
    const at = {
      lanes: [{ arrows: { y: 50, h: 10 } }],
      film: branching(),
      step,
      cell: 12,
      right: 1000,
      x: (/** @type {number} */ _row, /** @type {number} */ slot) => 200 + 12 * slot,
    };
    drawCompaction(/** @type {any} */ (pen), /** @type {any} */ (at), 0);
    return lines;
  };
  assert.deepEqual(drawn(4), []);
  const [down, along, up] = drawn(3);
  assert.deepEqual(down.slice(0, 2), [280, 50]);
  assert.deepEqual([along[0], along[2]], [280, 264]);
  assert.deepEqual(up.slice(2), [264, 49]);
  assert.equal(drawn(3).length, 3);
});

test("a frame around the pending token and each draft that the pointed one follows", () => {
  /** @type {number[]} */
  const xs = [];
  const pen = { p: {}, rect: (/** @type {number} */ x) => xs.push(x) };
  const film = branching();
  const at = {
    lanes: [{ tokens: { y: 0, h: 20 } }],
    rows: film.rows(2),
    view: { hover: { row: 0, slot: 6, index: 4, draft: 2 } },
    film,
    step: 2,
    cell: 10,
    right: 1000,
    begin: () => 3,
    x: (/** @type {number} */ _row, /** @type {number} */ slot) => 200 + 10 * slot,
  };
  drawBranch(/** @type {any} */ (pen), /** @type {any} */ (at));
  assert.deepEqual(xs, [230.5, 240.5, 260.5]);
});
