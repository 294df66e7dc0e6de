// Run: one film on the page: its heading, the sentence of the phase, its panels. Knows its own step and row; the shell moves it.

class Run {
  constructor(shell, film, number) {
    Object.assign(this, { shell, film, number });
    const { comparison } = shell;
    this.view = {
      film, step: 0, row: 0, hover: null, palette: shell.palette, progress: 1, zoom: null, pan: 0,
      other: comparison ? comparison.films[1 - number] : null,
      differs: (request, index) => comparison !== null && comparison.differs(request, index),
      pick: (row) => shell.pick(this.requestOf(row), row), point: (place) => shell.point(this, place), go: (step) => shell.goTo(this, step),
    };
    this._makeSections();
    this._makeRoot();
  }

  _makeSections() {
    const { view, shell, film } = this;
    const desk = {
      palette: () => shell.palette, touch: (section) => shell.touch(section), tip: (hint, event) => shell.tip.show(hint, event),
      point: view.point, pick: view.pick, go: view.go, happening: (step) => step <= view.step && film.round(step) === film.round(view.step),
      focus: () => shell.root.focus({ preventScroll: true }),
    };
    this.stage = new Stage(view);
    this.legend = new Legend(view);
    const of = (Panel) => new Section(desk, new Panel(view));
    const invariants = new ListSection(desk, new InvariantPanel(view)), pooled = film.json.rounds.some((round) => round.pool.length > 0);
    const [mask, time] = [of(MaskPanel), of(TimePanel)];
    this.columns = pooled ? [[of(VerifyPanel), time, invariants], [mask, of(PoolPanel)]] : [[of(VerifyPanel), invariants], [mask, time]];
    this.sections = [new Section(desk, this.stage, [this.legend]), ...this.columns.flat()];
  }

  _makeRoot() {
    this.title = element("p", { class: "sv-title" });
    this.words = element("p", { class: "sv-words", "aria-live": "polite", "aria-atomic": "true" });
    const columns = this.columns.map((column) => element("div", { class: "sv-column" }, ...column.map((section) => section.root)));
    const label = this.shell.comparison ? `${this.number ? "second" : "first"} run: ${runName(this.film)}` : null;
    this.root = element(
      "div", { class: "sv-run", role: label && "group", "aria-label": label }, ...(label ? [this.title] : []), this.words,
      this.sections[0].root, element("div", { class: "sv-columns" }, ...columns),
    );
  }

  dispose() { this.sections.forEach((section) => section.dispose()); }

  requestOf(row) { return this.film.rows(this.view.step)[row]?.request ?? null; }

  // Show a step and, of its rows, `row`; animate: K/V that this step moves is seen moving. Returns whether it has to.
  show(step, row, animate) {
    const moves = animate && step !== this.view.step && this.film.stage(step).moves.length > 0;
    Object.assign(this.view, { step, row, hover: null, progress: moves ? 0 : 1 });
    return moves;
  }

  // The sentence of the phase, and that of the row where there is one. missing: the request that was chosen is not here now.
  tell(missing, over) {
    const { film, view } = this;
    const key = [view.step, view.row, missing, over].join();
    if (key === this._told) return;
    this._told = key;
    const away = `Request ${missing} is not in this run's batch now; shown is row ${view.row}.`;
    const { phase, words, own } = sentences(view), extra = element("span", { class: "sv-own" }, missing === null ? own : away);
    this.words.replaceChildren(element("strong", {}, phase), ` ${words} `, extra);
    const facts = [...runFacts(film, view.step), ...(over ? ["over"] : [])].join(" · ");
    this.title.replaceChildren(element("strong", {}, runName(film)), ` ${facts} `, badge(film));
  }
}

// What the phase is, what it did to the batch, and what to the chosen row ("" where nothing is said of it).
function sentences({ film, step, row }) {
  const stage = film.stage(step), own = stage.words_of?.[row];
  return { phase: `${capital(film.phaseName(step))}.`, words: stage.words, own: own ? `Row ${row}: ${own}.` : "" };
}

function runName(film) {
  const { meta: { strategy }, options } = film.json, told = Object.entries(options).map(([name, value]) => `${name}=${value}`);
  if (!film.checked) return strategy;
  return strategy + (told.length ? ` (${told.join(", ")})` : "");
}

// Numbers count from 0 everywhere, as in the record.
function runFacts(film, step) {
  const { num_draft_tokens: k, decisions } = film.json.meta, rows = film.rows(step).length, scene = film.scene(step);
  const round = `round ${film.round(step)} / ${film.json.rounds.length - 1}`;
  const facts = [counted(rows, "row"), `K = ${k}`, round, film.phaseName(step)];
  return decisions.length > 1 ? [...facts, scene.decision] : facts;
}

function verdictOf(film) {
  if (!film.checked) return "not judged";
  const rules = [...new Set(film.violations.map((each) => each.rule))];
  if (rules.length) return `▲ breaks: ${rules.join(", ")}`;
  return `✓ ${film.json.meta.valid ? "valid" : "promises nothing, breaks nothing here"}`;
}

function badge(film) {
  const look = film.violations.length > 0 ? " sv-broken" : film.checked ? " sv-valid" : "";
  return element("span", { class: `sv-badge${look}` }, verdictOf(film));
}

function capital(word) { return word.charAt(0).toUpperCase() + word.slice(1); }
