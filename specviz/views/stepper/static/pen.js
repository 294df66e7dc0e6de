// Pens: one set of strokes for a canvas and for SVG, in CSS pixels from the top left. Knows no run and no panel.
// Palette: the colours that CSS gives to the widget's root, read once for each theme.

const PALETTE = [
  "ink", "muted", "faint", "panel", "page", "blue", "blueSoft", "green", "greenSoft", "orange", "orangeSoft", "amber", "amberSoft",
  "red", "redSoft", "grey", "greySoft", "target", "draft", "stale", "held", "prompt",
];
const SANS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif";
const MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace";

function readPalette(element) {
  const style = getComputedStyle(element);
  const dashed = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  return Object.fromEntries(PALETTE.map((name) => [name, style.getPropertyValue(`--sv-${dashed(name)}`).trim() || "#888"]));
}

// The last results of a costly question, by key.
class Kept {
  constructor(most = 200) { Object.assign(this, { most, found: new Map() }); }

  get(key, make) {
    const known = this.found.get(key);
    if (known !== undefined) return known;
    if (this.found.size >= this.most) this.found.clear();
    const made = make();
    this.found.set(key, made);
    return made;
  }
}

const measuring = { context: null, widths: new Kept(), cuts: new Kept(20000), fonts: new Kept() };

// Widths are kept by font and by string, since to join the two for every word takes longer than to draw it.
function measureText(string, font) {
  return measuring.widths.get(font, () => new Kept(20000)).get(string, () => {
    measuring.context ??= document.createElement("canvas").getContext("2d");
    measuring.context.font = font;
    return measuring.context.measureText(string).width;
  });
}

function fontOf({ size = 11, weight = 400, mono = false }) {
  const key = weight + size / 100 + (mono ? 0.5 : 0); // a number: it is asked for every word
  return measuring.fonts.get(key, () => `${weight} ${size}px ${mono ? MONO : SANS}`);
}

// `string` cut with … so that it takes at most `max` px; by letters, not by halves of them.
function cutText(string, max, font) {
  return measureText(string, font) <= max ? string : measuring.cuts.get(`${max} ${font}${string}`, () => cutLetters(string, max, font));
}

function cutLetters(string, max, font) {
  const letters = [...string];
  let low = 0, high = letters.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (measureText(`${letters.slice(0, middle).join("")}…`, font) <= max) low = middle;
    else high = middle - 1;
  }
  return low ? `${letters.slice(0, low).join("")}…` : "";
}

class Pen {
  constructor(palette) { this.p = palette; }
  measure(string, look = {}) { return measureText(string, fontOf(look)); }
  cut(string, max, look = {}) { return cutText(string, max, fontOf(look)); }

  line(x1, y1, x2, y2, { stroke, width = 1, dash, arrow = false }) {
    this._path([[x1, y1], [x2, y2]], { stroke, width, dash });
    if (!arrow) return;
    const angle = Math.atan2(y2 - y1, x2 - x1), size = 4 + width;
    const wing = (turn) => [x2 - size * Math.cos(angle + turn), y2 - size * Math.sin(angle + turn)];
    this._path([wing(0.5), [x2, y2], wing(-0.5)], { fill: stroke });
  }
}

class CanvasPen extends Pen {
  constructor(palette, context) {
    super(palette);
    this.context = context;
    this._hatches = new Map();
    this.forget();
  }

  // The context is told nothing twice, since that is most of what drawing costs. To be called when it may have lost what it was told.
  forget() {
    this._told = {};
    Object.assign(this.context, { textBaseline: "middle", direction: "ltr" });
  }

  _tell(name, value) {
    if (this._told[name] === value) return;
    this._told[name] = value;
    this.context[name] = value;
  }

  rect(x, y, w, h, { fill, stroke, width = 1, radius = 0, dash, hatch }) {
    const c = this.context;
    if (!radius && !stroke && !hatch) {
      this._tell("fillStyle", fill);
      c.fillRect(x, y, w, h);
      return;
    }
    c.beginPath();
    const inset = stroke ? width / 2 : 0;
    if (radius) c.roundRect(x + inset, y + inset, Math.max(w - 2 * inset, 0), Math.max(h - 2 * inset, 0), radius);
    else c.rect(x + inset, y + inset, w - 2 * inset, h - 2 * inset);
    for (const style of [fill, hatch && this._hatch(hatch)]) {
      if (!style) continue;
      this._tell("fillStyle", style);
      c.fill();
    }
    if (stroke) this._stroke(stroke, width, dash);
  }

  _stroke(stroke, width, dash) {
    const c = this.context, pattern = dash ?? [], key = pattern.join();
    if (this._told.dash !== key) c.setLineDash(pattern);
    this._told.dash = key;
    this._tell("strokeStyle", stroke);
    this._tell("lineWidth", width);
    c.stroke();
  }

  _hatch(colour) {
    if (!this._hatches.has(colour)) {
      const tile = document.createElement("canvas"), scale = Math.max(window.devicePixelRatio || 1, 1);
      tile.width = tile.height = 6 * scale;
      const c = tile.getContext("2d");
      c.scale(scale, scale);
      c.strokeStyle = colour;
      c.lineWidth = 1.5;
      for (const x of [-6, 0, 6]) {
        c.beginPath();
        c.moveTo(x, 6);
        c.lineTo(x + 6, 0);
        c.stroke();
      }
      const pattern = this.context.createPattern(tile, "repeat");
      pattern.setTransform(new DOMMatrix().scale(1 / scale));
      this._hatches.set(colour, pattern);
    }
    return this._hatches.get(colour);
  }

  text(string, x, y, look) {
    const font = fontOf(look), shown = look.max === undefined ? string : cutText(string, look.max, font);
    if (shown === "") return;
    this._tell("font", font);
    this._tell("fillStyle", look.fill ?? this.p.ink);
    this._tell("textAlign", look.align ?? "left");
    this.context.fillText(shown, x, y);
  }

  clip(x, y, w, h, draw) {
    const c = this.context;
    c.save();
    c.beginPath();
    c.rect(x, y, w, h);
    c.clip();
    draw();
    this._restore();
  }

  // Draw what follows moved by (x, y).
  shifted(x, y, draw) {
    this.context.save();
    this.context.translate(x, y);
    draw();
    this._restore();
  }

  _restore() {
    this.context.restore();
    this.forget();
  }

  _path(points, { stroke, fill, width = 1, dash }) {
    const c = this.context;
    c.beginPath();
    points.forEach(([x, y], n) => (n ? c.lineTo(x, y) : c.moveTo(x, y)));
    if (fill) {
      c.closePath();
      this._tell("fillStyle", fill);
      c.fill();
    }
    if (stroke) this._stroke(stroke, width, dash);
  }
}

class SvgPen extends Pen {
  constructor(palette, prefix = "sv") {
    super(palette);
    this.parts = [];
    this.definitions = [];
    this._names = new Map();
    this._prefix = prefix;
  }

  rect(x, y, w, h, { fill, stroke, width = 1, radius = 0, dash, hatch }) {
    const inset = stroke ? width / 2 : 0;
    const box = `x="${round2(x + inset)}" y="${round2(y + inset)}" width="${round2(Math.max(w - 2 * inset, 0))}" ` +
      `height="${round2(Math.max(h - 2 * inset, 0))}"${radius ? ` rx="${round2(Math.min(radius, h / 2))}"` : ""}`;
    this.parts.push(`<rect ${box} fill="${fill ? xml(fill) : "none"}"${this._line(stroke, width, dash)}/>`);
    if (hatch) this.parts.push(`<rect ${box} fill="url(#${this._hatch(hatch)})"/>`);
  }

  _line(stroke, width, dash) {
    if (!stroke) return "";
    return ` stroke="${xml(stroke)}" stroke-width="${width}"${dash ? ` stroke-dasharray="${dash.join(" ")}"` : ""}`;
  }

  _hatch(colour) {
    if (!this._names.has(colour)) {
      const name = `${this._prefix}-hatch-${this._names.size}`;
      this._names.set(colour, name);
      this.definitions.push(`<pattern id="${name}" width="6" height="6" patternUnits="userSpaceOnUse">` +
        `<path d="M-6 6L0 0M0 6L6 0M6 6L12 0" stroke="${xml(colour)}" stroke-width="1.5" fill="none"/></pattern>`);
    }
    return this._names.get(colour);
  }

  text(string, x, y, look) {
    const shown = look.max === undefined ? string : cutText(string, look.max, fontOf(look));
    if (shown === "") return;
    const anchor = { center: "middle", right: "end" }[look.align];
    this.parts.push(`<text x="${round2(x)}" y="${round2(y)}" dominant-baseline="central" font-family="${xml(look.mono ? MONO : SANS)}" ` +
      `font-size="${look.size ?? 11}"${look.weight ? ` font-weight="${look.weight}"` : ""}${anchor ? ` text-anchor="${anchor}"` : ""} ` +
      `fill="${xml(look.fill ?? this.p.ink)}" xml:space="preserve">${xml(shown)}</text>`);
  }

  clip(x, y, w, h, draw) {
    const name = `${this._prefix}-clip-${this.definitions.length}`;
    const box = `x="${round2(x)}" y="${round2(y)}" width="${round2(w)}" height="${round2(h)}"`;
    this.definitions.push(`<clipPath id="${name}"><rect ${box}/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${name})">`);
    draw();
    this.parts.push("</g>");
  }

  _path(points, { stroke, fill, width = 1, dash }) {
    const d = points.map(([x, y], n) => `${n ? "L" : "M"}${round2(x)} ${round2(y)}`).join("");
    this.parts.push(`<path d="${d}${fill ? "Z" : ""}" fill="${fill ? xml(fill) : "none"}"${this._line(stroke, width, dash)}/>`);
  }

  // Draw what follows moved by (x, y).
  shifted(x, y, draw) {
    this.parts.push(`<g transform="translate(${round2(x)} ${round2(y)})">`);
    draw();
    this.parts.push("</g>");
  }

  svg(width, height, title) {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">` +
      `<title>${xml(title)}</title><defs>${this.definitions.join("")}</defs>${this.parts.join("")}</svg>`;
  }
}

function round2(value) { return Math.round(value * 100) / 100; }

// `string` as text or attribute of XML; what XML cannot hold becomes �.
function xml(string) {
  return String(string)
    .replace(/[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu, "\u{FFFD}")
    .replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
