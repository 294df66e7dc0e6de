// Legend: what the colours and signs of the batch mean, of those that the run has. Nothing in it
// can be pointed at.

import { fontOf, Kept, measureText } from "../draw/text.js";
import { eventsOf } from "../film/events.js";
import { drafterName, hasSource } from "../film/head.js";
import { STATE_WORDS } from "../film/states.js";
import { drawGuess } from "./guesses.js";
import { cellLooks } from "./lanelooks.js";
import { seenAt } from "./seen.js";
import { drawState } from "./statelane.js";

/** @import { BoxLook, Film, FilmJson, Move, Pen, StateKind, View } from "../types.d.ts" */

const ACCEPT = 3; // the phase in which only drafts of trees move
const STATES = Object.entries({
  ...STATE_WORDS,
  kept: "state that the row goes on from, and what it has read",
});

export class Legend {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.entries = this._entries();
    /** @type {Kept<number>} */
    this._heights = new Kept(20);
    /** @type {Set<string>[] | null} */
    this.states = null;
  }

  // [what is drawn, words]; of both runs where there are two, so that their panels stand at one
  // height
  /** @returns {[string, string][]} */
  _entries() {
    const { film, other } = this.view;
    const films = other ? [film, other] : [film];
    /** @param {(film: Film) => boolean} holds */
    const any = (holds) => films.some(holds);
    const held = new Set(
      films.flatMap(({ json }) =>
        json.lanes.flatMap((lane) => lane.map((run) => json.kinds[run[2]])),
      ),
    );
    /** @param {(phase: number, moves: Move[]) => boolean} where */
    const moves = (where) =>
      any(({ json }) =>
        json.rounds.some((round) =>
          round.stages.some(({ moves }, phase) => moves.length > 0 && where(phase, moves)),
        ),
      );
    const keeping = films.filter(
      ({ json }) => json.gaps?.draft || json.meta.kv_bytes_per_slot.draft > 0,
    );
    const drafters = new Set(keeping.map(drafterName));
    const broken = any((each) => each.violations.length > 0);
    const wrong = any(({ violations }) => violations.some((each) => each.rule === "bonus"));
    const judged = films.every((each) => each.knowsChoices);
    const ownToken = judged ? "● the target's own token" : "● the last token of the round";
    /** @param {...[string, string]} kinds */
    const own = (...kinds) => kinds.filter(([kind]) => held.has(kind));
    /** @type {(show: boolean, kind: string, words: string) => [string, string][]} */
    const when = (show, kind, words) => (show ? [[kind, words]] : []);
    return [
      ["p", "prompt"],
      ["a", "committed"],
      ["pending", "○ pending: no K/V yet"],
      ...own(["drafted", "? drafted"], ["unverified", "⊘ behind ]: not verified"]),
      ...own(["accepted_now", "✓ accepted"]),
      ["bonus_now", ownToken],
      ...when(wrong, "wrong_now", "▲ not the target's own"),
      ...when(
        any((each) => eventsOf(each, "rejection").length > 0),
        "rejected_now",
        "✗ rejected",
      ),
      ...own(
        ["unreached_now", "– not reached"],
        ["discarded_now", "↺ verified, thrown away"],
        ["stale", "stale"],
        ["padding", "padding"],
      ),
      ["target", "target K/V"],
      ...when(drafters.size > 0, "draft", `${[...drafters].sort().join(" or ")} K/V`),
      ...when(
        any((each) => hasSource(each, "own")),
        "own",
        "K/V read with the head's own feature",
      ),
      ...when(
        any((each) => hasSource(each, "mask")),
        "mask",
        "K/V of a block, for this round only",
      ),
      ...when(held.has("stale"), "staleKV", "stale K/V"),
      ["written", "written now"],
      ...STATES.map(([kind, words]) => /** @type {[string, string]} */ ([`state ${kind}`, words])),
      ...when(
        moves((phase) => phase !== ACCEPT),
        "moved",
        "moved by realignment",
      ),
      ...when(
        // Only those of the target's K/V have arrows.
        moves((phase, all) => phase === ACCEPT && all.some((move) => move[0] === 0)),
        "compacted",
        "accepted draft moved within its row",
      ),
      ...when(
        any((each) => each.drifts),
        "drift",
        "position is not the index",
      ),
      ...when(broken, "violation", "violation"),
      ...when(other !== null, "differs", "not what the other run wrote"),
      ...films.flatMap(({ json }) => this._gaps(json)),
    ];
  }

  /**
   * What a log lacks of the batch.
   * @param {FilmJson} json
   * @returns {[string, string][]}
   */
  _gaps({ gaps }) {
    return (gaps?.batch ?? []).map((words) => ["gap", words]);
  }

  key() {
    return [...this._seen()].sort().join();
  }

  describe() {
    return `Legend: ${this.words().join("; ")}.`;
  }

  words() {
    return this._shown().map(([, words]) => words);
  }

  /** The entries of what is on screen. */
  _shown() {
    const seen = this._seen();
    return this.entries.filter(([look]) => seen.has(look));
  }

  _seen() {
    const views = this.view.pair?.views ?? [this.view];
    const comparison = this.view.pair?.comparison ?? null;
    return new Set(views.flatMap(({ film, step }) => [...seenAt(film, step, comparison)]));
  }

  /** What is on screen at the steps of the runs, each set once. */
  _states() {
    /** @type {Map<string, Set<string>>} */
    const states = new Map();
    const { film, other } = this.view;
    const comparison = this.view.pair?.comparison ?? null;
    for (const each of other ? [film, other] : [film])
      for (let step = 0; step < each.steps; step++) {
        const seen = seenAt(each, step, comparison);
        states.set([...seen].sort().join(), seen);
      }
    return [...states.values()];
  }

  /**
   * [look, words, x, y] of each entry, line after line
   * @param {number} width
   * @param {[string, string][]} entries
   */
  _places(width, entries) {
    /** @type {[string, string, number, number][]} */
    const places = [];
    let x = 12;
    let y = 12;
    for (const [look, words] of entries) {
      const w = 26 + measureText(words, fontOf({ size: 11 })) + 16;
      if (x > 12 && x + w > width) [x, y] = [12, y + 20];
      places.push([look, words, x, y]);
      x += w;
    }
    return places;
  }

  /**
   * That of the step with most entries, so that nothing moves.
   * @param {number} width
   */
  height(width) {
    return this._heights.get(width, () => {
      this.states ??= this._states();
      const ends = this.states.map((seen) => {
        const entries = this.entries.filter(([look]) => seen.has(look));
        return this._places(width, entries).at(-1)?.[3] ?? 0;
      });
      return Math.max(...ends, 0) + 12;
    });
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    for (const [look, words, x, y] of this._places(width, this._shown())) {
      this._sample(pen, look, x, y);
      pen.text(words, x + 26, y, { size: 11, fill: pen.p.muted });
    }
  }

  /**
   * @param {Pen} pen
   * @param {string} name
   * @param {number} x
   * @param {number} y
   */
  _sample(pen, name, x, y) {
    const { p } = pen;
    /**
     * @param {string} text
     * @param {string} fill
     */
    const sign = (text, fill) =>
      pen.text(text, x + 10, y, { size: 12, weight: 700, fill, align: "center" });
    /** @param {BoxLook} look */
    const bar = (look) => pen.rect(x, y - 3, 20, 6, { radius: 3, ...look });
    /** @type {Record<string, () => void>} */
    const special = {
      padding: () => sign("·", p.muted),
      target: () => bar({ fill: p.target }),
      draft: () => bar({ fill: p.draft }),
      own: () => drawGuess(pen, "own", x, y, 20, 6),
      mask: () => drawGuess(pen, "mask", x, y, 20, 6),
      staleKV: () => bar({ fill: p.orangeSoft, hatch: p.orange, radius: 0 }),
      written: () => bar({ stroke: p.ink, radius: 2 }),
      moved: () => pen.line(x, y, x + 20, y, { stroke: p.blue, width: 1.75, arrow: true }),
      compacted: () => pen.line(x + 20, y, x, y, { stroke: p.green, width: 1.75, arrow: true }),
      drift: () => this._drift(pen, x, y),
      violation: () => sign("▲", p.red),
      gap: () => sign("∅", p.muted),
      differs: () => {
        for (const up of [1, 4]) pen.rect(x + 2, y + 5 - up, 16, 1.5, { fill: p.red });
      },
    };
    const [, state] = name.split("state ");
    if (special[name]) special[name]();
    else if (state) {
      if (state === "kept") pen.rect(x, y - 1, 10, 2, { fill: p.target });
      drawState(pen, /** @type {StateKind} */ (state), x + 10, y, p.target);
    } else pen.rect(x + 2, y - 7, 16, 14, { ...cellLooks(p)[name], radius: 4 });
  }

  /**
   * @param {Pen} pen
   * @param {number} x
   * @param {number} y
   */
  _drift(pen, x, y) {
    pen.rect(x, y - 6, 20, 12, { fill: pen.p.redSoft, radius: 2 });
    pen.text("9+2", x + 10, y, { size: 9, fill: pen.p.red, weight: 700, align: "center" });
  }
}
