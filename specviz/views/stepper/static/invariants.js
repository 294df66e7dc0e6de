// InvariantPanel: what is out of step in this round, up to the phase that is shown, in words that lead to row and slot. A page lists the
// items as buttons; a picture draws them as text.

const LISTED = 50, DRAWN = 8; // entries of the list for a round on the page, and in a picture
const APART = 2; // rows up to which each has an entry of its own

class InvariantPanel {
  static id = "invariants";

  constructor(view) {
    this.view = view;
    this._known = new Kept();
  }

  empty() { return !this.view.film.steps; }

  // Violations of this round up to this phase, those of the chosen row first.
  _found() { return this._known.get(`${this.view.step} ${this.view.row}`, () => this._search()); }

  _search() {
    const { film, step, row } = this.view, first = step - film.phase(step), found = [];
    for (let at = first; at <= step; at++) found.push(...film.violationsAt(at));
    const rank = (each) => (film.rowOf(step, each.request) === row ? 0 : 1);
    return found.sort((a, b) => rank(a) - rank(b));
  }

  title() {
    const { film, step } = this.view, all = film.violations.length, found = this._found().length;
    if (!film.checked) return "Invariants · not checked here";
    if (!all) return `Invariants · all ten hold in all ${counted(film.json.rounds.length, "round")}`;
    return `Invariants · ${found ? counted(found, "violation") : "none violated"} in round ${film.round(step)} so far, ${all} in the run`;
  }

  _row({ step, request, row }) {
    const found = this.view.film.rowOf(step, request);
    return found < 0 ? row : found;
  }

  _text(each) {
    const more = each.count > 1 ? ` (${this._size([each])})` : "", where = `row ${this._row(each)} (request ${each.request})`;
    return `${each.rule}, ${where}, ${this._place(each)}: ${each.expected}; ${each.found}${more}`;
  }

  _place({ phase, model }) {
    return `${this.view.film.json.phases[phase]} phase${model < 0 ? "" : `, ${["target", "draft"][model]} model`}`;
  }

  _size(some) { return counted(some.reduce((sum, each) => sum + each.count, 0), some[0].slot === null ? "token" : "slot"); }

  // Violations of one rule in one phase and model: an entry for all of them where many rows have one, with the first as its example.
  _together(some) {
    if (some.length <= APART) return some.map((each) => this._item(each));
    const rows = joinedRanges(some.map((each) => [this._row(each), this._row(each) + 1])), [first] = some;
    const where = `rows ${rangeWords(rows)}`, example = `in row ${this._row(first)} ${first.expected}; ${first.found}`;
    return [{ ...this._item(first), text: `${first.rule}, ${where}, ${this._place(first)}, ${this._size(some)}: ${example}` }];
  }

  _grouped(found) {
    const groups = new Map();
    for (const each of found) {
      const key = `${each.step} ${each.rule} ${each.model}`;
      groups.set(key, [...(groups.get(key) ?? []), each]);
    }
    return [...groups.values()].flatMap((some) => this._together(some));
  }

  _item(each) { return { text: this._text(each), row: this._row(each), slot: each.slot, step: each.step }; }

  // What leads somewhere: this round's violations, or else where the next or the last ones are.
  items() {
    const { film, step } = this.view, found = this._found(), listed = this._grouped(found);
    if (listed.length > LISTED) return [...listed.slice(0, LISTED), this._rest(listed)];
    if (found.length || !film.violations.length) return listed;
    const next = film.violations.find((each) => each.step > step), near = next ?? film.violations.findLast((each) => each.step < step);
    const same = film.round(near.step) === film.round(step), when = same ? "in this round" : `in round ${film.round(near.step)}`;
    return [{ ...this._item(near), text: `${next ? "next" : "last"} one ${when}: ${this._text(near)}` }];
  }

  _rest(listed) { return { ...listed[LISTED], text: `and ${listed.length - LISTED} more, the first of them: ${listed[LISTED].text}` }; }

  describe() {
    const found = this._found(), items = this.items();
    return `${this.title()}.${items.length ? ` ${found.length ? "First" : "Nearest"}: ${items[0].text}.` : ""}`;
  }

  table() {
    const { film } = this.view, head = ["row", "request", "phase", "model", "rule", "slot", "how many", "expected", "found"];
    const rows = this._found().slice(0, 400).map((each) => [
      this._row(each), each.request, film.json.phases[each.phase], ["–", "target", "draft"][each.model + 1], each.rule, each.slot ?? "–",
      each.count, each.expected, each.found,
    ]);
    return { caption: "", head, rows };
  }

  // {sign, lines} of what a picture says.
  _paragraphs(width) {
    const items = this.items(), sign = this._found().length ? "▲" : "→", all = items.length;
    const told = items.slice(0, DRAWN).map(({ text }) => ({ sign, text }));
    if (!items.length) told.push({ sign: "✓", text: `Nothing is out of step in ${counted(this.view.film.json.rounds.length, "round")}.` });
    if (all > DRAWN) told.push({ sign: "", text: `and ${all - DRAWN} more of them` });
    return told.map(({ text, ...rest }) => ({ ...rest, lines: wrapWords(text, width - 2 * PAD - 18, { size: 12 }) }));
  }

  height(width) { return this._paragraphs(width).reduce((sum, { lines }) => sum + lines.length * 17 + 7, 4); }

  draw(pen, width) {
    const { p } = pen, colours = { "▲": p.red, "✓": p.green, "→": p.muted };
    let y = 10;
    for (const { sign, lines } of this._paragraphs(width)) {
      if (sign) pen.text(sign, PAD, y, { size: sign === "▲" ? 10 : 12, weight: 700, fill: colours[sign] });
      lines.forEach((line, n) => pen.text(line, PAD + 18, y + n * 17, { size: 12, fill: p.ink }));
      y += lines.length * 17 + 7;
    }
  }

  hit() { return null; }
}
