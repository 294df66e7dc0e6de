import assert from "node:assert/strict";
import { test } from "node:test";
import { asLong } from "../src/page/notice.js";

test("the room of a number is that of the longest one below the end", () => {
  assert.deepEqual([0, 1, 10, 11, 100, 101].map(asLong), ["9", "9", "9", "99", "99", "999"]);
});
