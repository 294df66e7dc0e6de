import assert from "node:assert/strict";
import test from "node:test";
import { drafterName, hasSource, keepsNothing, sourceAt, sourceWords } from "../src/film/head.js";
import { maskCells } from "../src/film/sight.js";
import { drawGuesses } from "../src/panels/guesses.js";
import { Legend } from "../src/panels/legend.js";
import { maskVerdict } from "../src/panels/maskwords.js";
import { slotHint } from "../src/panels/slotwords.js";
import { Stage } from "../src/panels/stage.js";
import { VerifyPanel } from "../src/panels/verify.js";
import { tinyFilm } from "./tiny.js";

const SOURCES = ["none", "target", "own", "mask", "block"];
const [OWN, MASK, BLOCK] = [2, 3, 4];

/**
 * As Python writes it: the head's K/V of the first draft, in slot 4, is a guess.
 * @param {number} [source]
 * @param {(json: any) => void} [change]
 */
function headed(source = OWN, change = () => {}) {
  return tinyFilm((json) => {
    json.head = "eagle3 head";
    json.sources = SOURCES;
    json.meta.draft_kv = source === OWN ? "provisional" : "masks";
    json.rounds[0].stages.forEach((/** @type {any} */ stage, /** @type {number} */ phase) => {
      stage.guessed = [phase === 2 ? [[4, 5, source]] : []];
    });
    change(json);
  });
}

/**
 * @param {any} film
 * @param {number} [step]
 * @returns {any}
 */
function viewOf(film, step = 2) {
  return { film, step, row: 0, hover: null, other: null, zoom: null, pan: 0, turn: 0 };
}

test("a slot of the head's K/V says where its feature came from", () => {
  const film = headed();
  assert.equal(sourceAt(film, 2, 0, 1), "none", "the first token has none before it");
  assert.equal(sourceAt(film, 2, 0, 2), "target");
  assert.equal(sourceAt(film, 2, 0, 4), "own");
  assert.equal(sourceAt(film, 2, 0, 5), "target", "the guesses end in slot 4");
  assert.equal(sourceAt(film, 2, 0, 6), null, "pending: nothing that counts lies there");
  assert.equal(sourceAt(tinyFilm(), 2, 0, 4), null, "no head");
  assert.equal(sourceWords(film, 2, 0, 2), "token 1, read with the target's feature of token 0");
  assert.equal(sourceWords(film, 2, 0, 4), "token 3, read with the head's own feature of token 2");
  assert.match(sourceWords(headed(MASK), 2, 0, 4), /^mask entry for token 3,/);
  assert.match(sourceWords(headed(BLOCK), 2, 0, 4), /^token 3 as the first of a block,/);
  assert.match(sourceWords(headed(MASK), 2, 0, 1), /^token 0, made from .* of this very token$/);
  assert.match(sourceWords(film, 2, 0, 1), /^token 0, read without a feature/);
  assert.equal(sourceWords(tinyFilm(), 2, 0, 4), "");
});

test("only a source that occurs has an entry in the legend", () => {
  /** @param {any} film */
  const words = (film) => new Legend(viewOf(film)).entries.map((each) => each[1]);
  assert.ok(words(headed()).includes("K/V read with the head's own feature"));
  assert.ok(!words(headed()).includes("K/V of a block, for this round only"));
  assert.ok(words(headed(MASK)).includes("K/V of a block, for this round only"));
  assert.ok(words(headed()).includes("eagle3 head K/V"));
  assert.ok(!words(headed()).includes("draft K/V"));
  assert.ok(words(tinyFilm()).includes("draft K/V"));
  assert.deepEqual(
    SOURCES.filter((each) => hasSource(headed(), /** @type {any} */ (each))),
    ["own"],
  );
});

test("panels name the head, and other runs keep their words", () => {
  const [head, model] = [viewOf(headed()), viewOf(tinyFilm())];
  assert.equal(drafterName(model.film), "draft");
  assert.match(new Stage(head).title(), /K\/V of target and eagle3 head$/);
  assert.match(new Stage(model).title(), /K\/V of target and draft$/);
  assert.match(new VerifyPanel(head).title(), /what the eagle3 head said/);
  assert.match(new VerifyPanel(model).title(), /what the draft said/);
  assert.ok(new VerifyPanel(head).table().head.includes("eagle3 head's choices"));
  const cell = head.film.cell(2, "tokens", 0, 4);
  assert.match(slotHint(head, 0, 4, cell), /eagle3 head K\/V of a draft: token 3, read with/);
  assert.match(slotHint(model, 0, 4, cell), /, draft K\/V of a draft$/);
  const [line] = new Stage(head).table().rows.filter((row) => row[0] === 4);
  assert.equal(line.at(-1), "token 3, read with the head's own feature of token 2");
  assert.equal(new Stage(model).table().head.length, 7);
});

test("a head without K/V leaves out what is about K/V", () => {
  const film = headed(OWN, (json) => (json.meta.kv_bytes_per_slot.draft = 0));
  const view = viewOf(film);
  assert.ok(keepsNothing(film));
  assert.ok(!keepsNothing(headed()));
  assert.ok(!keepsNothing(tinyFilm((json) => (json.meta.kv_bytes_per_slot.draft = 0))));
  assert.match(new Stage(view).title(), /K\/V of the target$/);
  assert.doesNotMatch(slotHint(view, 0, 4, film.cell(2, "tokens", 0, 4)), /head/);
  assert.equal(new Stage(view).table().head.at(-1), "target K/V");
  assert.match(maskVerdict(film, 1, null)[1], /^The eagle3 head reads one state of the target/);
});

test("a mask entry has no token", () => {
  const fed = [1, 0, 0, 3, 2, 2, 2, 1, 4, 0];
  const film = headed(MASK, (json) => {
    json.rounds[0].stages[1].feeds = [fed];
  });
  const queries = maskCells(film, 1, 0)?.queries ?? [];
  assert.deepEqual(
    queries.map((each) => [each.name, each.text]),
    [
      ["pending", "#3"],
      ["d1", "mask"],
    ],
  );
});

test("guesses are drawn as dashes in the slots that hold them", () => {
  for (const source of [OWN, MASK]) {
    const film = headed(source);
    /** @type {any[]} */
    const drawn = [];
    /** @type {any} */
    const pen = {
      p: {},
      rect: () => {},
      line: (/** @type {any[]} */ ...line) => drawn.push(line),
    };
    /** @type {any} */
    const at = {
      film,
      step: 2,
      cell: 20,
      right: 1000,
      lanes: [{ draft: { y: 40, h: 6 } }],
      x: (/** @type {number} */ _row, /** @type {number} */ slot) => 200 + 20 * slot,
    };
    drawGuesses(pen, at, 0, 0);
    assert.equal(drawn.length, 1);
    const [x1, y1, x2, y2, look] = drawn[0];
    assert.ok(x1 >= 280 && x2 <= 300 && y1 === 43 && y2 === 43);
    assert.ok(look.dash.length === 2 && look.width === 6);
  }
});
