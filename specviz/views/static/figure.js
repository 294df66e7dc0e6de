// Figure: one step as a picture, without anything to press: the same panels, one under the other.

const MARGIN = 16, BETWEEN_CARDS = 12, HEADING = 30, SIDE_BY_SIDE = 860; // px

// What a run shows, as blocks {height, draw(pen)} of a width.
class FigureRun {
  constructor(view, width) {
    const own = this._telling(view);
    Object.assign(this, { view, width });
    this.blocks = [this._head(), this._words(), this._card(new Stage(view), width, [new Legend(view)])];
    while (own.length > 1 && width >= SIDE_BY_SIDE) this.blocks.push(this._beside(own.splice(0, 2)));
    this.blocks.push(...own.map((panel) => this._card(panel, width)));
    const broken = new InvariantPanel(view);
    if (broken.items().length) this.blocks.push(this._card(broken, width));
  }

  // The panels that have something to say at this step: before anything is drafted, there is no verification to show.
  _telling(view) {
    const { film, step, row } = view, panels = [new PoolPanel(view)];
    if (maskCells(film, step, row)) panels.unshift(new MaskPanel(view));
    if (film.phase(step) > 0) panels.unshift(new VerifyPanel(view));
    return panels.filter((panel) => !panel.empty());
  }

  _head() {
    const { film, step } = this.view, name = runName(film), facts = `${runFacts(film, step).join(" · ")} · `;
    const look = { size: 16, weight: 700 }, small = { size: 12.5 };
    const draw = (pen) => {
      pen.text(name, 0, 12, { ...look, max: this.width });
      const x = pen.measure(name, look) + 12;
      const after = x + pen.measure(facts, small), fill = film.violations.length > 0 ? pen.p.red : pen.p.muted;
      pen.text(facts, x, 13, { ...small, fill: pen.p.muted, max: this.width - x });
      pen.text(verdictOf(film), after, 13, { ...small, fill, max: this.width - after });
    };
    return { height: 22, draw };
  }

  _words() {
    const { phase, words, own } = sentences(this.view), look = { size: 14 }, small = { size: 12.5 };
    const lines = wrapWords(`${phase} ${words}`, this.width, look), more = own ? wrapWords(own, this.width, small) : [];
    const draw = (pen) => {
      lines.forEach((line, n) => pen.text(line, 0, 10 + 21 * n, look));
      more.forEach((line, n) => pen.text(line, 0, 10 + 21 * lines.length + 18 * n, { ...small, fill: pen.p.muted }));
    };
    return { height: 21 * lines.length + 18 * more.length, draw };
  }

  _card(panel, width, under = []) {
    const parts = [panel, ...under], heights = parts.map((each) => Math.ceil(each.height(width)));
    const height = HEADING + heights.reduce((sum, each) => sum + each + 8, 0);
    const draw = (pen, tall = height) => {
      pen.rect(0, 0, width, tall, { fill: pen.p.panel, stroke: pen.p.faint, radius: 10 });
      pen.text(panel.title(), PAD, 17, { size: 12.5, weight: 650, fill: pen.p.muted, max: width - 2 * PAD });
      let y = HEADING;
      parts.forEach((each, n) => {
        pen.shifted(0, y, () => each.draw(pen, width, heights[n]));
        y += heights[n] + 8;
      });
    };
    return { width, height, draw };
  }

  // Two panels in one line, divided where they are lowest.
  _beside(panels) {
    const room = this.width - BETWEEN_CARDS, height = (block) => Math.max(...block.map((card) => card.height));
    const divided = [0.5, 0.58, 0.66].map((share) => [this._card(panels[0], room * share), this._card(panels[1], room * (1 - share))]);
    const cards = divided.reduce((best, each) => (height(each) < height(best) ? each : best)), tall = height(cards);
    const draw = (pen) => {
      cards[0].draw(pen, tall);
      pen.shifted(cards[0].width + BETWEEN_CARDS, 0, () => cards[1].draw(pen, tall));
    };
    return { height: tall, draw };
  }
}

class Figure {
  constructor(films, { step, row, width }, palette) {
    const comparison = films.length > 1 ? new Comparison(...films) : null;
    this.runs = films.map((film, number) => {
      const at = comparison ? comparison.stepOf(number, Math.min(step, comparison.clocks - 1)) : Math.min(step, film.steps - 1);
      return new FigureRun(this._view(films, number, at, row, palette, comparison), width - 2 * MARGIN);
    });
    this.width = width;
    this.palette = palette;
    const gaps = this.runs.flatMap((run) => run.blocks).length - 1;
    this.height = 2 * MARGIN + this.runs.flatMap((run) => run.blocks).reduce((sum, block) => sum + block.height, 0) + gaps * BETWEEN_CARDS;
  }

  _view(films, number, step, row, palette, comparison) {
    const film = films[number], request = films[0].rows(comparison ? comparison.stepOf(0, step) : step)[row]?.request;
    const own = number ? film.rowOf(step, request) : row, rows = film.rows(step).length;
    return {
      film, step, row: Math.max(Math.min(own < 0 ? row : own, rows - 1), 0), hover: null, palette, progress: 1, zoom: null, pan: 0,
      other: comparison ? films[1 - number] : null, differs: (...token) => comparison !== null && comparison.differs(...token),
      pick() {}, point() {}, go() {},
    };
  }

  draw(pen) {
    pen.rect(0, 0, this.width, this.height, { fill: this.palette.page });
    let y = MARGIN;
    for (const block of this.runs.flatMap((run) => run.blocks)) {
      pen.shifted(MARGIN, y, () => block.draw(pen));
      y += block.height + BETWEEN_CARDS;
    }
  }

  svg() {
    const pen = new SvgPen(this.palette), { film, step } = this.runs[0].view;
    this.draw(pen);
    return pen.svg(this.width, this.height, `${runName(film)}, ${runFacts(film, step).join(", ")}: ${film.stage(step).words}`);
  }

  // PNG in base64
  png(scale) {
    const canvas = element("canvas", { width: Math.round(this.width * scale), height: Math.round(this.height * scale) });
    const context = canvas.getContext("2d", { alpha: false });
    context.fillStyle = this.palette.page;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.scale(scale, scale);
    this.draw(new CanvasPen(this.palette, context));
    const [head, data] = canvas.toDataURL("image/png").split(",");
    if (head.startsWith("data:image/png") && data) return data;
    throw new Error(`${canvas.width} × ${canvas.height} pixels are too many; choose a smaller width or scale`);
  }
}

function base64(text) {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));
}

// A step of one run, or of two, as a picture in base64. settings: format ("png" or "svg"), theme, width, scale, step, row; place: any
// element of the page, which lends the colours.
function drawFigure(films, settings, place) {
  const root = element("div", { class: "specviz", "data-theme": settings.theme, hidden: true });
  place.append(root);
  const figure = new Figure(films, settings, readPalette(root));
  root.remove();
  return settings.format === "svg" ? base64(figure.svg()) : figure.png(settings.scale);
}
