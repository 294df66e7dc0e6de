// Figure: one step as a picture, without anything to press: the same panels, one under the other.

import { element } from "../draw/elements.js";
import { readPalette } from "../draw/palette.js";
import { CanvasPen } from "../draw/pen.js";
import { SvgPen } from "../draw/svg.js";
import { contextOf } from "../draw/text.js";
import { Comparison } from "../film/compare.js";
import { Legend } from "../panels/legend.js";
import { PairStage } from "../panels/pairstage.js";
import { BETWEEN_CARDS, differenceBlock, FigureRun, tallest } from "./figurerun.js";
import { RUNS, runFacts, runName } from "./run.js";

/** @import { FigureSettings, Film, Palette, Pen, View } from "../types.d.ts" */

// px; at the last, two runs stand side by side
const MARGIN = 16;
const TWO_RUNS = 960;

class Figure {
  /**
   * @param {Film[]} films
   * @param {FigureSettings} at
   * @param {Palette} palette
   */
  constructor(films, { step, row, width, difference, opening }, palette) {
    const comparison = films.length > 1 ? new Comparison(films[0], films[1], difference) : null;
    const views = films.map((film, number) => {
      const at = comparison
        ? comparison.stepOf(number, Math.min(step, comparison.clocks - 1))
        : Math.min(step, film.steps - 1);
      return this._view(films, number, at, row, palette, comparison);
    });
    if (comparison)
      views.forEach((view, number) => {
        view.pair = { number, views, names: RUNS, comparison };
        view.turn = opensByPositions(opening, step, row) ? 1 : 0;
      });
    this.runs = views.map((view) => new FigureRun(view, this._room(films.length, width)));
    this.width = width;
    this.palette = palette;
    this.lines = comparison ? this._both(views, comparison) : this._lines(0);
    this.height =
      2 * MARGIN -
      BETWEEN_CARDS +
      this.lines.reduce((sum, line) => sum + tallest(line) + BETWEEN_CARDS, 0);
  }

  /**
   * px for a run
   * @param {number} runs
   * @param {number} width
   */
  _room(runs, width) {
    const room = width - 2 * MARGIN;
    return runs > 1 && width >= TWO_RUNS ? (room - BETWEEN_CARDS) / 2 : room;
  }

  /**
   * What two runs differ in, their names and sentences, their batches in one panel, the rest.
   * @param {View[]} views
   * @param {Comparison} comparison
   */
  _both(views, comparison) {
    const [run] = this.runs;
    const room = this.width - 2 * MARGIN;
    return [
      ...(comparison.words ? [[differenceBlock(comparison.words, room)]] : []),
      ...this._lines(0, run.over),
      [run.rail(room)],
      [run.card(new PairStage(views), room, [new Legend(views[0])])],
      ...this._lines(run.over),
    ];
  }

  /**
   * Blocks that stand side by side, from the top.
   * @param {number} from
   * @param {number} [to]
   */
  _lines(from, to) {
    const [first, second] = this.runs.map((run) => run.blocks.slice(from, to));
    if (!second) return first.map((block) => [block]);
    if (this.width < TWO_RUNS) return [...first, ...second].map((block) => [block]);
    return Array.from({ length: Math.max(first.length, second.length) }, (_, n) => [
      first[n],
      second[n],
    ]);
  }

  /**
   * @param {Film[]} films
   * @param {number} number
   * @param {number} step
   * @param {number} row
   * @param {Palette} palette
   * @param {Comparison | null} comparison
   * @returns {View}
   */
  _view(films, number, step, row, palette, comparison) {
    const film = films[number];
    const request = films[0].rows(comparison ? comparison.stepOf(0, step) : step)[row]?.request;
    const own = number ? film.rowOf(step, request) : row;
    const rows = film.rows(step).length;
    return {
      film,
      step,
      row: Math.max(Math.min(own < 0 ? row : own, rows - 1), 0),
      hover: null,
      palette,
      progress: 1,
      zoom: null,
      pan: 0,
      tall: null,
      tight: false,
      room: null,
      turn: 0,
      other: comparison ? films[1 - number] : null,
      pair: null,
      dense: 0,
      differs: (request, index) => comparison?.differs(request, index) ?? false,
      pick() {},
      point() {},
      go() {},
    };
  }

  /** @param {Pen} pen */
  draw(pen) {
    pen.rect(0, 0, this.width, this.height, { fill: this.palette.page });
    let y = MARGIN;
    for (const line of this.lines) {
      const tall = tallest(line);
      line.forEach((block, n) => {
        if (block)
          pen.shifted(MARGIN + n * (this.runs[0].width + BETWEEN_CARDS), y, () =>
            block.draw(pen, tall),
          );
      });
      y += tall + BETWEEN_CARDS;
    }
  }

  svg() {
    const pen = new SvgPen(this.palette);
    const { film, step } = this.runs[0].view;
    this.draw(pen);
    return pen.svg(
      this.width,
      this.height,
      `${runName(film)}, ${runFacts(film, step).join(", ")}: ${film.stage(step).words}`,
    );
  }

  /**
   * PNG in base64
   * @param {number} scale
   */
  png(scale) {
    const canvas = element("canvas", {
      width: Math.round(this.width * scale),
      height: Math.round(this.height * scale),
    });
    const context = contextOf(canvas, { alpha: false });
    context.fillStyle = this.palette.page;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.scale(scale, scale);
    this.draw(new CanvasPen(this.palette, context));
    const [head, data] = canvas.toDataURL("image/png").split(",");
    if (head.startsWith("data:image/png") && data) return data;
    throw new Error(
      `${canvas.width} × ${canvas.height} pixels are too many; choose a smaller width or scale`,
    );
  }
}

/**
 * Whether two runs stand by positions in a step and a row: those at which the view opens.
 * @param {FigureSettings["opening"]} opening
 * @param {number} step
 * @param {number} row
 */
function opensByPositions(opening, step, row) {
  return opening?.by === "positions" && opening.step === step && opening.row === row;
}

/** @param {string} text */
function base64(text) {
  return btoa(
    Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""),
  );
}

/**
 * A step of one run, or of two, as a picture in base64. settings: format ("png" or "svg"), theme,
 * width, scale, step, row; place: any element of the page, which lends the colours.
 * @param {Film[]} films
 * @param {FigureSettings} settings
 * @param {Element} place
 */
export function drawFigure(films, settings, place) {
  const root = element("div", { class: "specviz", "data-theme": settings.theme, hidden: true });
  place.append(root);
  const figure = new Figure(films, settings, readPalette(root));
  root.remove();
  return settings.format === "svg" ? base64(figure.svg()) : figure.png(settings.scale);
}
