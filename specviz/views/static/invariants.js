// InvariantPanel: what is out of step in this round, up to the phase that is shown, in words that lead to row and slot. A page lists the
// items as buttons; a picture draws them as text.

const RULE_WORDS = {
  lengths: "length of the row", rectangle: "common end of the rows", positions: "position ids", mask: "mask", kv: "K/V",
  caches: "the draft's cache", acceptance: "acceptance", bonus: "bonus token", budget: "budget", eos: "end of the text",
};
const LISTED = 50, DRAWN = 8; // violations of a round that the page lists, and that a picture does

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
    const { rule, phase, model, request, slot, count, expected, found } = each, unit = slot === null ? "token" : "slot";
    const where = model < 0 ? "" : `, ${["target", "draft"][model]} model`, more = count > 1 ? ` (${counted(count, unit)})` : "";
    const place = `row ${this._row(each)} (request ${request}), ${this.view.film.json.phases[phase]} phase${where}`;
    return `${RULE_WORDS[rule] ?? rule}, ${place}: expected ${expected}; found ${found}${more}`;
  }

  _item(each) { return { text: this._text(each), row: this._row(each), slot: each.slot, step: each.step }; }

  // What leads somewhere: this round's violations, or else where the next or the last ones are.
  items() {
    const { film, step } = this.view, found = this._found();
    if (found.length > LISTED) return [...found.slice(0, LISTED).map((each) => this._item(each)), this._rest(found)];
    if (found.length || !film.violations.length) return found.map((each) => this._item(each));
    const next = film.violations.find((each) => each.step > step), near = next ?? film.violations.findLast((each) => each.step < step);
    const same = film.round(near.step) === film.round(step), when = same ? "in this round" : `in round ${film.round(near.step)}`;
    return [{ ...this._item(near), text: `${next ? "next" : "last"} one ${when}: ${this._text(near)}` }];
  }

  _rest(found) {
    const item = this._item(found[LISTED]);
    return { ...item, text: `and ${found.length - LISTED} more, the first of them: ${item.text}` };
  }

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
    return { caption: this.title(), head, rows };
  }

  // {sign, lines} of what a picture says.
  _paragraphs(width) {
    const items = this.items(), sign = this._found().length ? "▲" : "→", all = this._found().length;
    const told = items.slice(0, DRAWN).map(({ text }) => ({ sign, text }));
    if (!items.length) told.push({ sign: "✓", text: `Nothing is out of step in ${counted(this.view.film.json.rounds.length, "round")}.` });
    if (all > DRAWN) told.push({ sign: "", text: `and ${all - DRAWN} more in this round` });
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
