import assert from "node:assert/strict";
import test from "node:test";
import { extentOf, linkTo, placeOfLink } from "../src/page/link.js";
import { tinyFilm } from "./tiny.js";

const phases = ["schedule", "draft", "verify", "accept", "synchronise"];
const extent = { phases, rounds: 4 };

test("a link names round, phase and row, and leads back there", () => {
  const link = linkTo(extent, { step: 12, row: 3 });
  assert.equal(link, "#round=2&phase=verify&row=3");
  assert.deepEqual(placeOfLink(extent, link), { step: 12, row: 3, wrong: "" });
});

test("what a link leaves out is the first", () => {
  assert.deepEqual(placeOfLink(extent, "#round=1"), { step: 5, row: 0, wrong: "" });
  assert.deepEqual(placeOfLink(extent, "#phase=accept"), { step: 3, row: 0, wrong: "" });
});

test("another hash is no link", () => {
  assert.equal(placeOfLink(extent, ""), null);
  assert.equal(placeOfLink(extent, "#top"), null);
});

test("a link to what the run does not have says so", () => {
  const place = placeOfLink(extent, "#round=9&phase=bonus&row=x");
  assert.equal(place?.step, 15);
  assert.equal(
    place?.wrong,
    "The link names a round that is none of 0 to 3 and a phase that is none of " +
      "schedule, draft, verify, accept, synchronise and a row that is no number.",
  );
  assert.match(placeOfLink(extent, "#round=-1")?.wrong ?? "", /none of 0 to 3/);
  assert.match(placeOfLink(extent, "#round=1e3")?.wrong ?? "", /none of 0 to 3/);
});

test("the longer of two runs says how many rounds there are", () => {
  const twice = tinyFilm((json) => json.rounds.push(structuredClone(json.rounds[0])));
  assert.equal(extentOf([tinyFilm(), twice]).rounds, 2);
});
