import assert from "node:assert/strict";
import test from "node:test";
import { SvgPen } from "../src/draw/svg.js";
import { bytesOf, chance, counted, milliseconds, quoted, rangeWords } from "../src/draw/words.js";

test("counts, ranges and quotations", () => {
  assert.equal(counted(1, "row"), "1 row");
  assert.equal(counted(2, "query", "queries"), "2 queries");
  const ranges = /** @type {[number, number][]} */ ([
    [3, 9],
    [12, 13],
  ]);
  assert.equal(rangeWords(ranges), "3–8, 12");
  assert.equal(rangeWords(ranges, 1), "3–8, …");
  assert.equal(quoted("abcdef", 4), "‘\u2068abc…\u2069’");
});

test("numbers with no more digits than they deserve", () => {
  assert.deepEqual([0, 0.001, 0.05, 1.26, 120.4].map(milliseconds), [
    "0 ms",
    "<0.01 ms",
    "0.05 ms",
    "1.3 ms",
    "120 ms",
  ]);
  assert.deepEqual([2000, 2.5e6, 3e9].map(bytesOf), ["2.0 kB", "2.5 MB", "3.00 GB"]);
  assert.deepEqual([null, 0.5, 0.004, 0.0001].map(chance), ["–", "0.50", "0.004", "<.001"]);
});

test("text that a model wrote cannot become markup in a figure", () => {
  const pen = new SvgPen({ ink: "#000" });
  pen.text('<script>&"\u0000', 0, 0, {});
  const svg = pen.svg(10, 10, "</title>");
  assert.ok(!svg.includes("<script"));
  assert.ok(!svg.includes("</title></"));
  assert.ok(svg.includes("&#60;script&#62;&#38;&#34;\u{FFFD}"));
});
