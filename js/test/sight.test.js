import assert from "node:assert/strict";
import test from "node:test";
import { joinedRanges } from "../src/film/ranges.js";
import { maskCells } from "../src/film/sight.js";
import { tinyFilm } from "./tiny.js";

/** @param {ReturnType<typeof maskCells>} cells */
function segmentsOf(cells) {
  return cells?.queries.map((query) => query.segments);
}

test("each query of the verification sees one slot more", () => {
  const cells = maskCells(tinyFilm(), 2, 0);
  assert.deepEqual(
    cells?.queries.map((query) => query.name),
    ["pending", "d1", "d2"],
  );
  // Slot 2 is a hole of the mask; slots 4 and 5 hold drafts.
  assert.deepEqual(segmentsOf(cells)?.[2], [
    [0, 1, "blank"],
    [1, 2, "seen"],
    [2, 3, "blank"],
    [3, 4, "seen"],
    [4, 6, "own"],
  ]);
  assert.deepEqual([cells?.leaks, cells?.holes, cells?.lost], [[], [], 0]);
});

test("what Python found wrong is laid over the queries that it names", () => {
  const film = tinyFilm((json) => {
    json.rounds[0].stages[2].faults = [[0, 0, 3, 2, [[0, 1]], [[2, 3]], 1]];
  });
  const cells = maskCells(film, 2, 0);
  const segments = segmentsOf(cells);
  assert.deepEqual(segments?.[0][0], [0, 1, "blank"]);
  assert.deepEqual(segments?.[1].slice(0, 3), [
    [0, 1, "leak"],
    [1, 2, "seen"],
    [2, 3, "hole"],
  ]);
  assert.deepEqual([cells?.leaks, cells?.holes, cells?.lost], [[[0, 1]], [[2, 3]], 1]);
});

test("slots beyond a window are told from those that its layers should see or not see", () => {
  /** @param {import("../src/types.d.ts").Windows} window */
  const filmed = (window) =>
    maskCells(
      tinyFilm((json) => {
        json.rounds[0].stages[2].windows = [window];
        json.meta.windows = { target: { sliding_attention: 2 } };
        json.meta.layers = { target: { sliding_attention: 3, full_attention: 1 } };
      }),
      2,
      0,
    );
  const right = filmed({ starts: [1, 3, 4] });
  assert.deepEqual(segmentsOf(right)?.[2].slice(1), [
    [1, 2, "beyond"],
    [2, 3, "blank"],
    [3, 4, "beyond"],
    [4, 6, "own"],
  ]);
  const window = { width: 2, layers: "3 of 4 layers", chunks: false };
  assert.deepEqual(right?.window, { ...window, leaks: [], holes: [] });
  const wrong = filmed({ starts: [1, 3, 5], due: [1, 4, 4] });
  assert.deepEqual(wrong?.window, { ...window, leaks: [[3, 4]], holes: [[4, 5]] });
  assert.deepEqual(segmentsOf(wrong)?.[1].slice(3), [
    [3, 4, "leak"],
    [4, 5, "own"],
    [5, 6, "blank"],
  ]);
  assert.deepEqual(segmentsOf(wrong)?.[2].slice(3), [
    [3, 4, "beyond"],
    [4, 5, "hole"],
    [5, 6, "own"],
  ]);
});

test("a phase without a forward of the row has no mask", () => {
  assert.equal(maskCells(tinyFilm(), 0, 0), null);
  assert.equal(maskCells(tinyFilm(), 1, 0), null);
  assert.equal(maskCells(tinyFilm(), 2, 1), null);
});

test("ranges that touch are joined", () => {
  const joined = joinedRanges([
    [5, 7],
    [0, 2],
    [2, 4],
    [6, 9],
  ]);
  assert.deepEqual(joined, [
    [0, 4],
    [5, 9],
  ]);
});
