import assert from "node:assert/strict";
import test from "node:test";
import { milliseconds } from "../src/draw/words.js";
import { tipPlace } from "../src/page/tip.js";

const size = { width: 200, height: 40 };

test("a tip leaves free what the pointer is on", () => {
  const { left, top } = tipPlace({ x: 100, y: 100 }, size, 800, 600);
  assert.ok(left > 100);
  assert.ok(top >= 124);
});

test("where the window ends, a tip stands above the pointer", () => {
  const { top } = tipPlace({ x: 100, y: 560 }, size, 800, 600);
  assert.ok(top + size.height <= 560 - 24);
});

test("the tip of a tap stands below the row, or above it", () => {
  assert.equal(tipPlace({ x: 100, y: 100 }, size, 800, 600, [80, 150]).top, 156);
  assert.equal(tipPlace({ x: 100, y: 560 }, size, 800, 600, [530, 590]).top, 530 - 6 - 40);
});

test("a tip stays within the place", () => {
  assert.equal(tipPlace({ x: 790, y: 100 }, size, 800, 600).left, 592);
  assert.equal(tipPlace({ x: 20, y: 100 }, { ...size, width: 900 }, 800, 600).left, 4);
});

test("from 10,000 ms on, times are seconds", () => {
  assert.deepEqual([9999.4, 9999.5, 12_345, 99_949, 123_456].map(milliseconds), [
    "9999 ms",
    "10.0 s",
    "12.3 s",
    "99.9 s",
    "123 s",
  ]);
});
