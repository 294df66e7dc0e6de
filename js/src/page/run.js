// Run: one film on the page: its heading, the sentence of the phase, its panels. Knows its own step
// and row; the shell moves it.

import { element } from "../draw/elements.js";
import { counted } from "../draw/words.js";
import { hasTrees } from "../film/tree.js";
import { EnteredPanel } from "../panels/entered.js";
import { InvariantPanel } from "../panels/invariants.js";
import { Legend } from "../panels/legend.js";
import { LegendPanel } from "../panels/legendpanel.js";
import { MaskPanel } from "../panels/mask.js";
import { MovesPanel } from "../panels/moves.js";
import { PoolPanel } from "../panels/pool.js";
import { Stage } from "../panels/stage.js";
import { TimePanel } from "../panels/time.js";
import { TreePanel } from "../panels/tree.js";
import { VerifyPanel } from "../panels/verify.js";
import { Lens } from "./lens.js";
import { ListSection } from "./list.js";
import { Section } from "./section.js";
import { SteeredSection } from "./steered.js";
import { wordsHeight } from "./wordroom.js";

/** @import { Desk, Film, PanelClass, Place, View } from "../types.d.ts" */
/** @import { Shell } from "./shell.js" */

export const RUNS = ["A", "B"]; // what two runs are called, as in Python

export class Run {
  /** @type {Lens} */ lens;
  /** @type {Section[]} */ sections;
  /** @type {HTMLElement} */ root;
  /** @type {HTMLElement} */ title;
  /** @type {HTMLElement} */ words;
  /** @type {string | undefined} */ _shown;

  /**
   * @param {Shell} shell
   * @param {Film} film
   * @param {number} number
   */
  constructor(shell, film, number) {
    this.shell = shell;
    this.film = film;
    this.number = number;
    const { comparison } = shell;
    /** @type {View} */
    this.view = {
      film,
      step: 0,
      row: 0,
      hover: null,
      palette: shell.palette,
      progress: 1,
      zoom: null,
      pan: 0,
      tall: null,
      tight: false,
      room: null,
      turn: 0,
      other: comparison ? comparison.films[1 - number] : null,
      pair: null,
      dense: 0,
      differs: (request, index) => comparison?.differs(request, index) ?? false,
      pick: (row) => shell.pick(this.requestOf(row)),
      point: (place) => shell.point(this, place),
      go: (step) => shell.goTo(this, step),
    };
    this._makeSections();
    this._makeRoot();
  }

  _makeSections() {
    const { view, shell, film } = this;
    /** @type {Desk} */
    const desk = {
      palette: () => shell.palette,
      scale: () => shell.screen?.scale ?? 1,
      touch: (section) => shell.frames.touch(section),
      tip: (hint, event, band) => shell.tip.show(hint, event, band),
      point: view.point,
      pick: view.pick,
      go: view.go,
      happening: (step) => step <= view.step && film.round(step) === film.round(view.step),
      focus: () => shell.root.focus({ preventScroll: true }),
    };
    /** @param {PanelClass} Panel */
    const of = (Panel) => new Section(desk, new Panel(view));
    const tree = hasTrees(film) ? [new SteeredSection(desk, new TreePanel(view))] : [];
    const [cards, mask] = [of(VerifyPanel), of(MaskPanel)];
    /** @type {import("./lens.js").Entry[]} */
    const entries = [
      { name: "pool", word: "pool", section: of(PoolPanel), phases: [0] },
      { name: "rows", word: "rows", section: of(EnteredPanel), phases: [0] },
      { name: "verify", word: "cards", section: cards, phases: [1, 3] },
      ...tree.map((section) => ({ name: "tree", word: "tree", section, phases: [] })),
      { name: "mask", word: "mask", section: mask, phases: [2] },
      { name: "moves", word: "moves", section: of(MovesPanel), phases: [4] },
      { name: "time", word: "time", section: of(TimePanel), phases: [] },
      {
        name: "invariants",
        word: film.violations.length ? "checks ▲" : "checks",
        section: new ListSection(desk, new InvariantPanel(view)),
        phases: [],
      },
      { name: "legend", word: "legend", section: of(LegendPanel), phases: [] },
    ];
    this.lens = new Lens(entries, (name) => shell.pin(name));
    const inLens = entries.map(({ section }) => section);
    // Two runs share one panel of their batches.
    this.batch = shell.comparison ? null : new Section(desk, new Stage(view), [new Legend(view)]);
    this.sections = this.batch ? [this.batch, ...inLens] : inLens;
  }

  _makeRoot() {
    this.title = element("p", { class: "sv-title" });
    this.words = element("p", { class: "sv-words", "aria-live": "polite", "aria-atomic": "true" });
    const { batch, words, lens, title } = this;
    const label = `${this.number ? "second" : "first"} run: ${runName(this.film)}`;
    this.root = batch
      ? element(
          "div",
          { class: "sv-run" },
          words,
          element("div", { class: "sv-screen" }, batch.root, lens.root),
        )
      : element("div", { class: "sv-run", role: "group", "aria-label": label }, title);
  }

  /** Whether its sentence and its lens are seen; of two runs, one is. */
  get told() {
    return (this.shell.duo?.told ?? this.number) === this.number;
  }

  /** The lens of the step that is shown. */
  turnLens() {
    this.lens.update(this.film.phase(this.view.step), this.shell.pinned);
    if (!this.told) this.lens.entries.forEach(({ section }) => (section.aside = true));
  }

  /**
   * Room for the longest sentence of the run, so that nothing moves from one step to the next.
   * Returns its height in px.
   * @param {number} width
   * @param {boolean} tight
   */
  reserve(width, tight) {
    const height = wordsHeight(this, width, tight);
    this.words.style.height = `${height}px`;
    return height;
  }

  dispose() {
    this.sections.forEach((section) => section.dispose());
  }

  /** @param {number} row */
  requestOf(row) {
    return this.film.rows(this.view.step)[row]?.request ?? null;
  }

  /**
   * Show a step and, of its rows, `row`; animate: K/V that this step moves is seen moving. Returns
   * whether it has to.
   * @param {number} step
   * @param {number} row
   * @param {boolean} animate
   */
  show(step, row, animate) {
    const moves = animate && step !== this.view.step && this.film.stage(step).moves.length > 0;
    Object.assign(this.view, { step, row, hover: null, progress: moves ? 0 : 1 });
    this.turnLens();
    return moves;
  }

  /**
   * The sentence of the phase, and that of the row where there is one. missing: the request that
   * was chosen is not here now.
   * @param {number | null} missing
   * @param {boolean} over
   */
  tell(missing, over) {
    const { film, view } = this;
    this.lens.tell();
    const key = [view.step, view.row, missing, over].join();
    if (key === this._shown) return;
    this._shown = key;
    const away = `Request ${missing} is not in this run's batch now; shown is row ${view.row}.`;
    const { phase, words, own } = sentences(view);
    const extra = element("span", { class: "sv-own" }, missing === null ? own : away);
    if (this.number === (this.shell.duo?.told ?? 0)) extra.append(" ", this.shell.notice.root);
    const name = this.shell.comparison ? `${RUNS[this.number]} · ` : "";
    this.words.replaceChildren(element("strong", {}, name + phase), ` ${words} `, extra);
    const round = `round ${film.round(view.step)} / ${film.json.rounds.length - 1}`;
    const rest = runFacts(film, view.step).filter((fact) => fact !== round);
    const facts = [round, ...(over ? ["over"] : []), ...rest].join(" · ");
    const title = element("strong", {}, name + runName(film));
    this.title.replaceChildren(title, badge(film), element("span", {}, facts));
  }
}

/**
 * @param {Place | null} one
 * @param {Place | null} other
 */
export function samePlace(one, other) {
  if (!one || !other) return one === other;
  const alike = one.row === other.row && one.slot === other.slot && one.index === other.index;
  return alike && one.draft === other.draft;
}

/**
 * Where in `other` the token of a place in `run` is; null where its request is not in the batch.
 * @param {Run} other
 * @param {Run} run
 * @param {Place | null} place
 */
export function placeIn(other, run, place) {
  if (!place || place.row === null) return null;
  const request = run.requestOf(place.row);
  const row = request === null ? -1 : other.film.rowOf(other.view.step, request);
  if (row < 0) return null;
  const { index } = place;
  if (index === null) return { row, index, slot: null };
  for (const [start, stop, , first, , owner] of other.film.lane(other.view.step, "tokens", row))
    if (owner === request && index >= first && index < first + stop - start)
      return { row, index, slot: start + index - first };
  return { row, index, slot: null };
}

/**
 * What the phase is, what it did to the batch, and what to the chosen row ("" where nothing is said
 * of it).
 * @param {View} at
 */
export function sentences({ film, step, row }) {
  const stage = film.stage(step);
  const own = stage.words_of?.[row];
  return {
    phase: `${capital(film.phaseName(step))}.`,
    words: stage.words,
    own: own ? `Row ${row}: ${own}.` : "",
  };
}

/** @param {Film} film */
export function runName(film) {
  const { meta, options } = film.json;
  const name = meta.lane === undefined ? meta.strategy : `lane ${meta.lane}: ${meta.strategy}`;
  const shown = Object.entries(options).map(([option, value]) => `${option}=${value}`);
  return film.checked && shown.length ? `${name} (${shown.join(", ")})` : name;
}

/**
 * Numbers count from 0 everywhere, as in the record.
 * @param {Film} film
 * @param {number} step
 */
export function runFacts(film, step) {
  const { num_draft_tokens: k, decisions, selector = "everything" } = film.json.meta;
  const rows = film.rows(step).length;
  const scene = film.scene(step);
  const round = `round ${film.round(step)} / ${film.json.rounds.length - 1}`;
  const chosen = selector === "everything" ? [] : [`selector ${selector}`];
  const head = film.json.head ? [film.json.head] : [];
  // Where there is no room for all, the last ones are cut off.
  const facts = [round, film.phaseName(step), counted(rows, "row"), ...head, `K = ${k}`, ...chosen];
  return decisions.length > 1 ? [...facts, scene.decision] : facts;
}

/** @param {Film} film */
export function verdictOf(film) {
  if (!film.checked) return "not judged";
  const rules = [...new Set(film.violations.map((each) => each.rule))];
  if (rules.length) return `▲ breaks: ${rules.join(", ")}`;
  if (film.json.gaps?.unchecked.length) return "✓ nothing broken, as far as it was logged";
  return `✓ ${film.json.meta.valid ? "valid" : "promises nothing, breaks nothing here"}`;
}

/** @param {Film} film */
export function badge(film) {
  const look = film.violations.length > 0 ? " sv-broken" : film.checked ? " sv-valid" : "";
  return element("span", { class: `sv-badge${look}` }, verdictOf(film));
}

/** @param {string} word */
export function capital(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
