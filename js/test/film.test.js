import assert from "node:assert/strict";
import test from "node:test";
import { decodeFilm } from "../src/film/film.js";
import { tinyFilm, tinyJson } from "./tiny.js";

test("a lane that refers to an earlier one is unfolded", () => {
  const lane = tinyFilm().lane(2, "tokens", 0);
  assert.deepEqual(
    lane.map((run) => run.slice(0, 2)),
    [
      [0, 1],
      [1, 3],
      [3, 6],
      [6, 7],
    ],
  );
});

test("a cell has its token, from the request or from its run", () => {
  const film = tinyFilm();
  assert.deepEqual(film.cell(2, "target", 0, 2), {
    kind: "held",
    index: 1,
    position: 1,
    request: 0,
    token: 2,
    origin: "p",
  });
  assert.equal(film.cell(2, "target", 0, 5)?.token, 8);
  assert.equal(film.cell(2, "target", 0, 0)?.kind, "padding");
  assert.equal(film.cell(2, "target", 0, 99), null);
});

test("tokens are committed when a round is accepted", () => {
  const film = tinyFilm();
  assert.deepEqual(
    [0, 2, 3, 4].map((step) => film.committed(step)),
    [0, 0, 2, 2],
  );
});

test("a film is read from gzipped JSON", async () => {
  const stream = new Blob([JSON.stringify(tinyJson())]).stream();
  const packed = stream.pipeThrough(new CompressionStream("gzip"));
  const film = await decodeFilm(await new Response(packed).arrayBuffer());
  assert.equal(film.steps, 5);
});
