// FigureRun: what a figure shows of one run: its panels, one under the other or side by side.

import { fontOf, measureText } from "../draw/text.js";
import { PAD, wrapWords } from "../draw/words.js";
import { maskCells } from "../film/sight.js";
import { InvariantPanel } from "../panels/invariants.js";
import { Legend } from "../panels/legend.js";
import { MaskPanel } from "../panels/mask.js";
import { PoolPanel } from "../panels/pool.js";
import { Stage } from "../panels/stage.js";
import { TreePanel } from "../panels/tree.js";
import { VerifyPanel } from "../panels/verify.js";
import { runFacts, runName, sentences, verdictOf } from "./run.js";

/** @import { Drawable, Panel, Pen, View } from "../types.d.ts" */

// px; at the last, two panels stand side by side
export const BETWEEN_CARDS = 12;
const HEADING = 30;
const SIDE_BY_SIDE = 860;

/** @typedef {{ height: number, draw(pen: Pen, tall?: number): void }} Block */

// What a run shows, as blocks {height, draw(pen)} of a width.
export class FigureRun {
  /**
   * @param {View} view
   * @param {number} width
   */
  constructor(view, width) {
    const own = this._telling(view);
    this.view = view;
    this.width = width;
    // Two runs share one panel of their batches, and one line of phases.
    this.blocks = view.pair
      ? [this._head(), this._words()]
      : [
          this._head(),
          this.rail(width),
          this._words(),
          this.card(new Stage(view), width, [new Legend(view)]),
        ];
    /** How many blocks stand over the batch of two runs. */
    this.over = this.blocks.length;
    while (own.length > 1 && width >= SIDE_BY_SIDE)
      this.blocks.push(this._beside(own.splice(0, 2)));
    this.blocks.push(...own.map((panel) => this.card(panel, width)));
    const broken = new InvariantPanel(view);
    if (broken.items().length) this.blocks.push(this.card(broken, width));
  }

  /**
   * The panels that have something to say at this step: before anything is drafted, there is no
   * verification to show.
   * @param {View} view
   */
  _telling(view) {
    const { film, step, row } = view;
    /** @type {Panel[]} */
    const panels = [new PoolPanel(view)];
    if (maskCells(film, step, row)) panels.unshift(new MaskPanel(view));
    if (film.phase(step) > 0) panels.unshift(new VerifyPanel(view), new TreePanel(view));
    return panels.filter((panel) => !panel.empty());
  }

  _head() {
    const { film, step, pair } = this.view;
    const name = (pair ? `${pair.names[pair.number]} · ` : "") + runName(film);
    const facts = `${runFacts(film, step).join(" · ")} · `;
    const look = { size: 16, weight: 700 };
    const small = { size: 12.5 };
    const [beside, wide] = [measureText(name, fontOf(look)) + 12, fontOf(small)];
    const needed = beside + measureText(facts, wide) + measureText(verdictOf(film), wide);
    const [x, y] = needed <= this.width ? [beside, 13] : [0, 33];
    /** @param {Pen} pen */
    const draw = (pen) => {
      pen.text(name, 0, 12, { ...look, max: this.width });
      const after = x + pen.measure(facts, small);
      const fill = film.violations.length > 0 ? pen.p.red : pen.p.muted;
      pen.text(facts, x, y, { ...small, fill: pen.p.muted, max: this.width - x });
      pen.text(verdictOf(film), after, y, { ...small, fill, max: this.width - after });
    };
    return { height: y + 9, draw };
  }

  /**
   * Where in the round the step is; a page has buttons there.
   * @param {number} width
   */
  rail(width) {
    const { film, step } = this.view;
    const now = film.phase(step);
    const w = width / film.phases;
    /** @param {Pen} pen */
    const draw = (pen) =>
      film.json.phases.forEach((name, phase) => {
        const { p } = pen;
        const look = phase === now ? { weight: 700 } : { fill: p.muted };
        pen.rect(phase * w, 0, w - 4, 3, {
          fill: phase === now ? p.blue : phase < now ? p.draft : p.faint,
        });
        pen.text(`${phase + 1} ${name}`, phase * w, 13, { size: 12, ...look });
      });
    return { height: 20, draw };
  }

  _words() {
    const { phase, words, own } = sentences(this.view);
    const look = { size: 14 };
    const small = { size: 12.5 };
    const lines = wrapWords(`${phase} ${words}`, this.width, look);
    const more = own ? wrapWords(own, this.width, small) : [];
    /** @param {Pen} pen */
    const draw = (pen) => {
      lines.forEach((line, n) => pen.text(line, 0, 10 + 21 * n, look));
      more.forEach((line, n) =>
        pen.text(line, 0, 10 + 21 * lines.length + 18 * n, { ...small, fill: pen.p.muted }),
      );
    };
    return { height: 21 * lines.length + 18 * more.length, draw };
  }

  /**
   * @param {Panel} panel
   * @param {number} width
   * @param {Drawable[]} [under]
   */
  card(panel, width, under = []) {
    const parts = [panel, ...under];
    const heights = parts.map((each) => Math.ceil(each.height(width)));
    const look = { size: 12.5, weight: 650 };
    const title = wrapWords(panel.title(), width - 2 * PAD, look);
    const head = HEADING + 17 * (title.length - 1);
    const height = head + heights.reduce((sum, each) => sum + each + 8, 0);
    /**
     * @param {Pen} pen
     * @param {number} [tall]
     */
    const draw = (pen, tall = height) => {
      pen.rect(0, 0, width, tall, { fill: pen.p.panel, stroke: pen.p.faint, radius: 10 });
      title.forEach((line, n) =>
        pen.text(line, PAD, 17 + 17 * n, { ...look, fill: pen.p.muted, max: width - 2 * PAD }),
      );
      let y = head;
      parts.forEach((each, n) => {
        pen.shifted(0, y, () => each.draw(pen, width, heights[n]));
        y += heights[n] + 8;
      });
    };
    return { width, height, draw };
  }

  /**
   * Two panels in one line, divided where they are lowest.
   * @param {Panel[]} panels
   */
  _beside(panels) {
    const room = this.width - BETWEEN_CARDS;
    const divided = [0.5, 0.58, 0.66].map((share) => [
      this.card(panels[0], room * share),
      this.card(panels[1], room * (1 - share)),
    ]);
    const cards = divided.reduce((best, each) => (tallest(each) < tallest(best) ? each : best));
    const height = tallest(cards);
    /**
     * @param {Pen} pen
     * @param {number} [tall]
     */
    const draw = (pen, tall = height) => {
      cards[0].draw(pen, tall);
      pen.shifted(cards[0].width + BETWEEN_CARDS, 0, () => cards[1].draw(pen, tall));
    };
    return { height, draw };
  }
}

/** @param {(Block | undefined)[]} blocks */
export function tallest(blocks) {
  return Math.max(...blocks.map((block) => block?.height ?? 0));
}

/**
 * Where two runs first differ, and why.
 * @param {string} words
 * @param {number} width
 * @returns {Block}
 */
export function differenceBlock(words, width) {
  const look = { size: 13 };
  const lines = wrapWords(words, width - 2 * PAD, look);
  const height = 18 * lines.length + 12;
  /** @param {Pen} pen */
  const draw = (pen) => {
    pen.rect(0, 0, width, height, { fill: pen.p.greySoft, radius: 8 });
    lines.forEach((line, n) => pen.text(line, PAD, 15 + 18 * n, look));
  };
  return { height, draw };
}
