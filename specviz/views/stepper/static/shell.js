// Shell: the widget as a whole. Holds what is shown (clock, row, what is pointed at), moves the runs, draws once a frame what has changed,
// and keeps step and row the same as the model's. The page around it belongs to others: keys count only in here, `dispose` leaves nothing.

const MOTION_MS = 260;

class Shell {
  constructor(model, root, films) {
    Object.assign(this, { model, root, clock: 0, way: 1, row: 0, request: null, playing: false, speed: 1, dirty: new Set(), frame: 0 });
    this.ends = new AbortController();
    this.comparison = films.length > 1 ? new Comparison(...films) : null;
    this.phases = films[0].phases;
    this.clocks = this.comparison ? this.comparison.clocks : films[0].steps;
    this._readTheme();
    this.tip = new Tip(root);
    this.help = new Help(this.comparison !== null, `sv-${crypto.getRandomValues(new Uint32Array(1))[0]}`);
    this.runs = films.map((film, number) => new Run(this, film, number));
    this.controls = new Controls(this);
    this.ahead = new Ahead(this);
    const shown = element("div", { class: "sv-runs" }, ...this.runs.map((run) => run.root));
    root.replaceChildren(this.controls.root, shown, this.tip.root, this.help.root);
    root.classList.toggle("sv-compared", this.comparison !== null);
    this.row = Math.max(model.get("row") ?? 0, 0);
    this._listen();
    this.controls.updatePlay();
    this._show(this._clamp(model.get("step") ?? 0), false);
  }

  dispose() {
    this.ends.abort();
    this.play(false);
    cancelAnimationFrame(this.frame);
    for (const [event, listener] of this.heard) this.model.off(event, listener);
    this.runs.forEach((run) => run.dispose());
  }

  _listen() {
    const { signal } = this.ends;
    this.heard = [
      ["change:step", () => this._show(this._clamp(this.model.get("step")), false)],
      ["change:row", () => this._pickRow(Math.max(this.model.get("row"), 0))],
      ["change:theme", () => this._themeChanged()],
    ];
    for (const [event, listener] of this.heard) this.model.on(event, listener);
    this.root.addEventListener("keydown", (event) => this._key(event), { signal });
    watchTheme(() => this._themeChanged(), signal);
    window.addEventListener("resize", () => this.touchAll(), { signal }); // another screen may have other pixels
    window.addEventListener("beforeprint", () => this._print("light"), { signal });
    window.addEventListener("afterprint", () => this._print(null), { signal });
  }

  _key(event) {
    const action = actionOf(event, this.comparison !== null);
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action(this);
  }

  // -- where we are

  _clamp(clock) { return Math.min(Math.max(Math.round(clock), 0), this.clocks - 1); }
  stepOf(run, clock) { return this.comparison ? this.comparison.stepOf(run.number, clock) : clock; }
  clockOf(run, step) { return this.comparison ? this.comparison.clockOf(run.number, step) : step; }

  go(clock) {
    const next = this._clamp(clock);
    if (next === this.clock) return;
    this.way = Math.sign(next - this.clock);
    this._show(next, next === this.clock + 1);
    this._paintAtOnce();
  }

  goTo(run, step) { this.go(this.clockOf(run, step)); }

  _show(clock, animate) {
    this.clock = clock;
    const moving = this.move(clock, animate);
    this.tip.show(null);
    this._save();
    this.touchAll();
    if (moving.some(Boolean)) this._animate();
  }

  // Where the runs are then; whether each one's K/V is to be seen moving.
  move(clock, animate) {
    const [first, second] = this.runs, step = this.stepOf(first, clock), rows = first.film.rows(step).length;
    const calm = !animate || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const moving = [first.show(step, Math.max(Math.min(this.row, rows - 1), 0), !calm)];
    this.request = first.requestOf(first.view.row);
    if (second) moving.push(this._showSecond(second, this.stepOf(second, clock), !calm));
    return moving;
  }

  _showSecond(run, step, animate) {
    const row = run.film.rowOf(step, this.request);
    this.missing = row < 0 ? this.request : null;
    return run.show(step, row >= 0 ? row : Math.max(Math.min(this.row, run.film.rows(step).length - 1), 0), animate);
  }

  _save() {
    if (this.model.get("step") === this.clock && this.model.get("row") === this.row) return;
    this.model.set("step", this.clock);
    this.model.set("row", this.row);
    try {
      this.model.save_changes();
    } catch { /* no kernel any more: the page goes on without it */ }
  }

  // -- what is chosen and pointed at

  // request: also chosen in the other run; row: of the run that was clicked.
  pick(request) {
    const [first] = this.runs, row = first.film.rowOf(first.view.step, request);
    if (row >= 0) this._pickRow(row);
  }

  pickBy(rows) {
    const { film, view } = this.runs[0];
    this._pickRow(Math.min(Math.max(view.row + rows, 0), film.rows(view.step).length - 1));
  }

  _pickRow(row) {
    if (row === this.row && row === this.runs[0].view.row) return;
    this.row = row;
    this._show(this.clock, false);
    this._paintAtOnce();
  }

  point(run, place) {
    const { hover } = run.view;
    if (hover === place || (hover && place && ["row", "slot", "index"].every((name) => hover[name] === place[name]))) return;
    for (const each of this.runs) each.view.hover = each === run ? place : this._elsewhere(run, each, place);
    this.touchAll();
  }

  // The same token in the other run.
  _elsewhere(run, other, place) {
    const request = place && run.requestOf(place.row), row = request === null ? -1 : other.film.rowOf(other.view.step, request);
    if (row < 0) return null;
    const { index } = place, own = (lane) => index !== null && index >= lane[3] && index < lane[3] + lane[1] - lane[0];
    const lane = other.film.lane(other.view.step, "tokens", row).find((each) => each[5] === request && own(each));
    return { row, index, slot: lane ? lane[0] + index - lane[3] : null };
  }

  // -- jumps

  // The clock at which something happens next, or happened last, in any run; null if it does not.
  target(what, direction) {
    const clocks = this.runs.map((run) => this._target(run, what, direction)).filter((clock) => clock !== null);
    return clocks.length ? (direction > 0 ? Math.min : Math.max)(...clocks) : null;
  }

  _target(run, what, direction) {
    const clocks = run.film.points(what).map((step) => this.clockOf(run, step));
    return (direction > 0 ? clocks.find((clock) => clock > this.clock) : clocks.findLast((clock) => clock < this.clock)) ?? null;
  }

  jump(what, direction) {
    const clock = this.target(what, direction);
    if (clock !== null) this.go(clock);
  }

  goToDifference() {
    const { first } = this.comparison, [run] = this.runs;
    if (!first) return;
    this.go(this.clockOf(run, first.step));
    this.pick(first.request);
  }

  setByTokens(byTokens) {
    this.comparison.byTokens = byTokens;
    this._show(this.clock, false);
  }

  // -- time

  play(on) {
    clearInterval(this.timer);
    this.playing = on && this.clocks > 1;
    if (this.playing && this.clock === this.clocks - 1) this.go(0);
    if (this.playing) this.timer = setInterval(() => this._tick(), 1000 / SPEEDS[this.speed]);
    this.controls?.updatePlay();
  }

  _tick() {
    if (this.clock < this.clocks - 1) this.go(this.clock + 1);
    if (this.clock === this.clocks - 1) this.play(false);
  }

  setSpeed(number) {
    this.speed = Math.min(Math.max(number, 0), SPEEDS.length - 1);
    this.play(this.playing);
  }

  _animate() {
    const began = performance.now(), clock = this.clock;
    const tick = (now) => {
      if (this.clock !== clock || this.ends.signal.aborted) return;
      const part = Math.min(Math.max((now - began) / MOTION_MS, 0), 1), eased = 1 - (1 - part) ** 3;
      for (const run of this.runs) {
        if (run.view.progress === 1) continue;
        run.view.progress = eased;
        this.touch(run.sections[0]);
      }
      if (part < 1) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  // -- looks

  zoom(direction) {
    for (const { stage } of this.runs) direction ? stage.zoomBy(direction) : stage.reset();
    this.touchStages();
  }

  slide(slots) {
    for (const { stage } of this.runs) stage.panBy(slots);
    this.touchStages();
  }

  touchStages() { this.runs.forEach((run) => this.touch(run.sections[0])); }

  showTables() {
    const sections = this.runs.flatMap((run) => run.sections), shown = !sections.every((section) => section.asTable);
    sections.forEach((section) => section.showTable(shown));
  }

  _readTheme(forced = null) {
    const wanted = forced ?? this.model.get("theme");
    this.root.dataset.theme = wanted === "light" || wanted === "dark" ? wanted : darkPage() ? "dark" : "light";
    this.palette = readPalette(this.root);
    this.runs?.forEach((run) => { run.view.palette = this.palette; });
  }

  _themeChanged() {
    this._readTheme();
    this.touchAll();
  }

  // On paper everything is light.
  _print(theme) {
    this._readTheme(theme);
    this.touchAll();
    this._paint();
  }

  // -- drawing

  touch(section) {
    this.dirty.add(section);
    this.frame ||= requestAnimationFrame(() => this._paint());
  }

  // For what a reader asked for: the work is done by the time the next frame begins. Of what comes faster than frames do, such as from a
  // slider that is dragged, the rest is left to that frame.
  _paintAtOnce() {
    if (this.painted) return;
    this.painted = requestAnimationFrame(() => { this.painted = 0; });
    this._paint();
  }

  touchAll() { this.runs.forEach((run) => run.sections.forEach((section) => this.touch(section))); }

  _paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const sections = [...this.dirty];
    this.dirty.clear();
    const drawn = sections.map((section) => section.paint());
    sections.forEach((section) => section.tell());
    this.controls.update();
    const over = (n) => this.comparison !== null && this.comparison.over(n, this.clock);
    this.runs.forEach((run, n) => run.tell(n ? this.missing : null, over(n)));
    Object.assign(this.root.dataset, { step: this.clock, row: this.runs[0].view.row });
    if (drawn.every(Boolean)) this.root.dataset.ready = "";
    this.ahead.plan();
  }
}

// What lies under the pointer, in words, beside it.
class Tip {
  constructor(place) {
    this.place = place;
    this.root = element("div", { class: "sv-tip", hidden: true, "aria-hidden": "true" });
  }

  show(hint, event) {
    this.root.hidden = !hint;
    if (!hint) return;
    setText(this.root, hint);
    const box = this.place.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const left = Math.max(Math.min(x + 14, box.width - this.root.offsetWidth - 8), 4);
    Object.assign(this.root.style, { left: `${left}px`, top: `${y + 20}px` });
  }
}
