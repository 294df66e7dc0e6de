// VerifyPanel: what the draft said about the chosen row, what the target says to that, and what was taken: a card for each draft, and one
// for the token behind the last. What became of each is known to `verdictCards`.

const CARD = { least: 96, most: 230, gap: 8, pad: 9, line: 15, bar: 21, head: 30, chip: 46, foot: 46 }; // px
const CONTEXT = 34; // px: the row so far, over the cards

class VerifyPanel {
  static id = "verify";

  constructor(view) {
    this.view = view;
    this._known = new Kept();
    this._grids = new Kept(20);
  }

  empty() { return !this.view.film.rows(this.view.step)[this.view.row]; }

  // What is judged stays as it is to the end of the round.
  key() {
    const { film, step, row, hover } = this.view;
    return `${film.round(step)} ${Math.min(film.phase(step), 3)} ${row} ${hover?.row === row ? hover.index : ""}`;
  }

  cards(step = this.view.step) {
    const { film, row } = this.view;
    return this._known.get(`${step} ${row}`, () => verdictCards(film, step, row));
  }

  get _entry() { return this.view.film.rows(this.view.step)[this.view.row]; }

  title() {
    const name = `Row ${this.view.row}`;
    if (!this._entry.gained) return `${name} idles: its request has ended`;
    if (!this._entry.drafted) return `${name} · the target's next token`;
    return `${name} · verification: what the draft said, what the target says`;
  }

  // Where the cards lie: {x, y, w, h} in px, {bars, lines} of a card, chip: px of what the draft said. The phases of a round share it.
  _grid(width) {
    const { film, step, row } = this.view, last = step - film.phase(step) + 4;
    return this._grids.get(`${last} ${row} ${width}`, () => this._places(this.cards(last), width));
  }

  _places(cards, width) {
    const room = width - 2 * PAD, most = Math.max(Math.floor((room + CARD.gap) / (CARD.least + CARD.gap)), 1);
    const rows = Math.ceil(cards.length / most), across = Math.ceil(cards.length / Math.max(rows, 1));
    const bars = [4, 4, 3][rows] ?? 2, chip = cards.length > 1 ? CARD.chip : 20;
    const w = Math.min((room - (across - 1) * CARD.gap) / Math.max(across, 1), cards.length === 1 ? room : CARD.most), places = [];
    let y = CONTEXT;
    for (let n = 0; n < rows; n++) {
      const some = cards.slice(n * across, (n + 1) * across);
      const lines = Math.max(...some.map((card) => this._words(card, w).length));
      const h = CARD.head + chip + 18 + bars * CARD.bar + 8 + lines * CARD.line + CARD.foot;
      some.forEach((_, k) => places.push({ x: PAD + k * (w + CARD.gap), y, w, h, bars, lines, chip }));
      y += h + CARD.gap;
    }
    return { places, height: y + 2 };
  }

  _words(card, w) { return wrapWords(card.words, w - 2 * CARD.pad, { size: 11 }); }

  height(width) { return this._entry.gained ? this._grid(width).height : CONTEXT + 8; }

  draw(pen, width) {
    this._context(pen, width);
    const { places } = this._grid(width);
    this.cards().forEach((card, n) => new CardPainter(pen, this.view, card, places[n]).paint());
  }

  // The row's last tokens before the round, as far as they fit, and its pending one.
  _context(pen, width) {
    const { film } = this.view, { request, length } = this._entry, { p } = pen, y = CONTEXT / 2 - 3, look = { size: 11.5, mono: true };
    const pending = film.text(film.token(request, length - 1)), chip = Math.min(pen.measure(pending, look) + 28, 160);
    let x = PAD + pen.measure("the row so far", { size: 11 }) + 10, first = length - 1, room = width - PAD - x - chip - 14;
    pen.text("the row so far", PAD, y, { size: 11, fill: p.muted });
    const textOf = (index) => pen.cut(film.text(film.token(request, index)), LONGEST, look);
    const widthOf = (text) => pen.measure(text, look) + 4;
    while (first > 0 && widthOf(textOf(first - 1)) <= room) room -= widthOf(textOf(--first));
    if (first) pen.text("…", x, y, { size: 11, fill: p.muted });
    if (first) x += 14;
    for (let index = first; index < length - 1; index++) {
      pen.text(textOf(index), x, y, { ...look, fill: p.muted });
      x += widthOf(textOf(index));
    }
    drawChip(pen, pending, x, y, chip, { fill: p.page, stroke: p.blue, sign: "○" });
  }

  describe() {
    const { film, step, row } = this.view, entry = this._entry, phase = film.phase(step);
    if (!entry.gained) return `${this.title()}.`;
    const drafts = entry.drafts.map((token) => quoted(film.text(token))).join(" ");
    if (phase === 0) return `Row ${row} holds ${counted(entry.length, "token")}; nothing is drafted yet.`;
    if (phase < 3 && !entry.drafted) return `Row ${row} drafts nothing.`;
    if (phase < 3) return `Row ${row}, drafted: ${drafts}. ${phase === 1 ? "The target has not read them." : "Not judged yet."}`;
    const emitted = entry.emitted.map((token) => quoted(film.text(token))).join(" ");
    const stop = this.cards().find((card) => !["accepted", "bonus"].includes(card.fate));
    const why = stop && entry.drafted ? ` ${stop.name}: ${stop.words}.` : "";
    const accepted = entry.drafted ? `${entry.accepted} of ${counted(entry.drafted, "draft")} accepted, ` : "";
    return `Row ${row}: ${accepted}emitted ${emitted}.${why}`;
  }

  table() {
    const { film } = this.view, text = (token) => (token === null ? "–" : film.text(token));
    const list = (choices) => choices.map(([token, p]) => `${film.text(token)} ${chance(p)}`).join(", ") || "–";
    const rows = this.cards().map((card) => [
      card.name, card.index, text(card.draft), chance(card.q), chance(card.p), card.words, text(card.emitted), list(card.mind),
      list(card.says),
    ]);
    const head = ["", "index", "draft", "q", "target's p of it", "what became of it", "emitted", "draft's choices", "target's choices"];
    return { caption: "", head, rows };
  }

  hit(x, y, width) {
    if (!this._entry.gained) return null;
    const holds = (at) => x >= at.x && x < at.x + at.w && y >= at.y && y < at.y + at.h;
    const card = this.cards()[this._grid(width).places.findIndex(holds)];
    if (!card) return null;
    const { film, row } = this.view, said = card.draft === null ? "" : ` ${quoted(film.text(card.draft), 60)}, q ${chance(card.q)}`;
    const p = card.p === null ? "" : `, p ${chance(card.p)}`;
    return { row, slot: this._slotOf(card), index: card.index, hint: `${card.name}${said}${p} — ${card.words}` };
  }

  // Where a card's token stands in the batch now, null if nowhere.
  _slotOf(card) {
    const { film, step, row } = this.view, wanted = card.emitted ?? card.draft;
    const found = film.lane(step, "tokens", row).flatMap((run) => {
      const slot = run[0] + card.index - run[3];
      return run[3] >= 0 && slot >= run[0] && slot < run[1] ? [[slot, film.cellOf(run, slot)]] : [];
    });
    return (found.find(([, cell]) => cell.token === wanted) ?? found[0])?.[0] ?? null;
  }
}

class CardPainter {
  constructor(pen, view, card, at) {
    Object.assign(this, { pen, view, card, at, p: pen.p, left: at.x + CARD.pad, inner: at.w - 2 * CARD.pad, fate: FATES[card.fate] });
    [this.strong, this.soft] = this._colours();
  }

  _colours() {
    const { p } = this;
    return {
      waiting: [p.blue, p.blueSoft], accepted: [p.green, p.greenSoft], kept: [p.green, p.greenSoft], rejected: [p.orange, p.orangeSoft],
      bonus: [p.amber, p.amberSoft], thrown: [p.amber, p.amberSoft], wrong: [p.red, p.redSoft],
    }[this.card.fate] ?? [p.grey, p.greySoft];
  }

  text(words, x, y, look = {}) { this.pen.text(words, x, y, { size: 11, fill: this.p.muted, ...look }); }

  paint() {
    const { pen, p, at, card } = this, lit = this.view.hover?.row === this.view.row && this.view.hover.index === card.index;
    pen.rect(at.x, at.y, at.w, at.h, { fill: p.page, stroke: lit ? p.blue : p.faint, width: lit ? 2 : 1, radius: 8 });
    pen.rect(at.x + 8, at.y, at.w - 16, 3, { fill: this.strong });
    this._head(at.y + 17);
    this._draft(at.y + CARD.head);
    this._target(at.y + CARD.head + at.chip);
    const foot = at.y + at.h - CARD.foot, words = wrapWords(card.words, this.inner, { size: 11 });
    const fill = this.fate.pale || card.fate === "waiting" ? p.muted : card.fate === "wrong" ? p.red : p.ink;
    words.forEach((line, n) => this.text(line, this.left, foot + (n - at.lines + 0.5) * CARD.line, { fill, max: this.inner }));
    this._emitted(foot + 4);
  }

  _head(y) {
    const { card, at, fate } = this, quiet = fate.pale || card.fate === "waiting";
    this.text(card.name, this.left, y, { size: 13, weight: 700, fill: quiet ? this.p.muted : this.p.ink });
    const x = this.left + 8 + this.pen.measure(card.name, { size: 13, weight: 700 }), index = `index ${card.index}`;
    if (x + this.pen.measure(index) + 24 < at.x + at.w) this.text(index, x, y + 1);
    this.text(fate.sign, at.x + at.w - CARD.pad, y, { size: 13, weight: 700, fill: quiet ? this.p.muted : this.strong, align: "right" });
  }

  _draft(y) {
    const { card, p, pen } = this;
    if (card.last) {
      this.text(card.name === "next" ? "nothing drafted" : "no draft", this.left, y + 7);
      return;
    }
    this.text("draft", this.left, y + 7);
    if (card.q !== null) this.text(`q ${chance(card.q)}`, this.left + this.inner, y + 7, { align: "right" });
    const taken = card.fate === "accepted" || card.fate === "kept", dash = taken ? undefined : [3, 2];
    const look = card.draft === null ? { fill: p.page, stroke: p.grey, dash } : { fill: this.soft, stroke: this.strong, dash };
    drawChip(pen, card.draft === null ? "?" : this._text(card.draft), this.left, y + 27, this.inner, look);
  }

  _text(token) { return this.view.film.text(token); }

  // The target's choices; before it was asked, the draft's own.
  _target(y) {
    const { card, at } = this, asked = card.says.length > 0, choices = asked ? card.says : card.mind;
    this.text(asked || !choices.length ? "target" : "choices", this.left, y + 7);
    if (choices.length) this.text(asked ? "p" : "q", this.left + this.inner, y + 7, { align: "right" });
    this._choices(choices, card.p).forEach(([token, p], n) => this._bar(token, p, y + 17 + n * CARD.bar));
    for (let n = 0; n < at.bars && !choices.length; n++) {
      this.pen.rect(this.left, y + 20 + n * CARD.bar, this.inner * (0.7 - 0.13 * n), CARD.bar - 8, { fill: this.p.greySoft, radius: 3 });
    }
  }

  // As many as fit, the draft's token among them.
  _choices(choices, p) {
    const { card, at } = this, shown = choices.slice(0, at.bars);
    if (p === null || p === undefined || !choices.length || shown.some(([token]) => token === card.draft)) return shown;
    return [...shown.slice(0, at.bars - 1), [card.draft, p]];
  }

  // A token, its probability, and that as a bar under both.
  _bar(token, p, y) {
    const { pen, card, p: colours } = this, own = token === card.draft, taken = card.own && token === card.emitted, middle = y + 7.5;
    const fill = this.fate.pale ? colours.muted : colours.ink, number = chance(p), room = this.inner - pen.measure(number) - 8;
    pen.text(this._text(token), this.left, middle, { size: 11, mono: true, fill, weight: own || taken ? 700 : 400, max: room });
    pen.text(number, this.left + this.inner, middle, { size: 11, fill, align: "right" });
    pen.rect(this.left, y + 15, this.inner, 3, { fill: colours.greySoft });
    const bar = taken ? colours.amber : own ? this.strong : colours.draft;
    pen.rect(this.left, y + 15, Math.max(this.inner * Math.min(p ?? 0, 1), 1.5), 3, { fill: bar });
  }

  _emitted(y) {
    const { pen, card, p, at } = this;
    pen.line(this.left, y, at.x + at.w - CARD.pad, y, { stroke: p.faint });
    if (card.emitted === null) {
      this.text(this.view.film.judged(this.view.step) ? "emits nothing" : "–", this.left, y + 24);
      return;
    }
    const look = card.own ? { fill: p.amberSoft, stroke: p.amber, sign: "●" } : { fill: p.greenSoft, stroke: p.green, sign: "✓" };
    const wrong = card.fate === "wrong" ? { fill: p.redSoft, stroke: p.red, sign: "▲" } : {};
    drawChip(pen, this._text(card.emitted), this.left, y + 24, this.inner, { ...look, ...wrong });
  }
}
