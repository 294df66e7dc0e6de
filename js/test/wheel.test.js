import assert from "node:assert/strict";
import { test } from "node:test";

import { sideways } from "../src/page/wheel.js";

test("a wheel turns sideways by its own axis, or by Shift", () => {
  assert.equal(sideways({ shiftKey: false, deltaX: 0, deltaY: 40 }), 0);
  assert.equal(sideways({ shiftKey: true, deltaX: 0, deltaY: 40 }), 40);
  assert.equal(sideways({ shiftKey: false, deltaX: -50, deltaY: 40 }), -50);
  assert.equal(sideways({ shiftKey: false, deltaX: 30, deltaY: 40 }), 0);
});
