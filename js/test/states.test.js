import assert from "node:assert/strict";
import test from "node:test";
import { maskVerdict } from "../src/panels/maskwords.js";
import { seenAt } from "../src/panels/seen.js";
import { slotHint } from "../src/panels/slotwords.js";
import { maskCells } from "../src/film/sight.js";
import { layerWords, stateLanes, stateWords } from "../src/film/states.js";
import { tinyFilm } from "./tiny.js";

const stated = () =>
  tinyFilm((json) => {
    json.meta.layers = { target: { linear_attention: 6, full_attention: 2 } };
    json.meta.bytes_per_state = { target: 162816 };
    for (const { stages } of json.rounds)
      for (const stage of stages)
        stage.states = [
          [
            [
              ["wrong", 5, 5, 0],
              ["due", 3, 3, 0],
            ],
          ],
          [],
        ];
  });

test("a slot says which states have read up to its token", () => {
  const film = stated();
  assert.equal(stateLanes(film), 1);
  assert.equal(stateLanes(tinyFilm()), 0);
  assert.deepEqual(stateWords(film, 2, 0, 3), [
    "target's state that it should go on from (6 of 8 layers, 162.8 kB)",
  ]);
  assert.deepEqual(stateWords(film, 2, 0, 4), []);
  assert.deepEqual(stateWords(film, 2, 1, 3), []); // a row without states
  const seen = seenAt(film, 2);
  assert.ok(seen.has("state wrong") && seen.has("state due") && !seen.has("state kept"));
  const cell = film.cell(2, "tokens", 0, 3);
  const view = /** @type {any} */ ({ film, step: 2 });
  if (cell) assert.match(slotHint(view, 0, 3, cell), /· target's state that it should go on from/);
});

test("layers are counted where the record names them", () => {
  assert.equal(
    layerWords(undefined, () => true),
    "",
  );
  assert.equal(
    layerWords({ conv: 1 }, () => true),
    "1 of 1 layer",
  );
  assert.equal(
    layerWords({ conv: 1 }, () => false),
    "",
  );
});

test("a wrong window is told with its width and its layers", () => {
  const film = tinyFilm((json) => {
    json.rounds[0].stages[2].windows = [{ starts: [3, 3, 5], due: [3, 3, 4] }];
    json.meta.windows = { target: { sliding_attention: 2 } };
  });
  assert.deepEqual(maskVerdict(film, 2, maskCells(film, 2, 0)), [
    false,
    "✗ in layers with a window of 2 tokens, slot 4 is not seen and should be.",
  ]);
});
