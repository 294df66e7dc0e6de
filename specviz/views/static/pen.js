// Pens: one set of strokes for a canvas and for SVG, in CSS pixels from the top left. Knows no run and no panel.
// Palette: the colours that CSS gives to the widget's root, read once for each theme.

const PALETTE = [
  "ink", "muted", "faint", "panel", "page", "blue", "blueSoft", "green", "greenSoft", "orange", "orangeSoft", "amber", "amberSoft", "red", "redSoft",
  "grey", "greySoft", "target", "draft", "stale", "held", "prompt",
];
const SANS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif";
const MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace";

function readPalette(element) {
  const style = getComputedStyle(element);
  const dashed = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  return Object.fromEntries(PALETTE.map((name) => [name, style.getPropertyValue(`--sv-${dashed(name)}`).trim() || "#888"]));
}

const measuring = { context: null, widths: new Map() };

function measureText(string, font) {
  measuring.context ??= document.createElement("canvas").getContext("2d");
  const key = font + string;
  if (!measuring.widths.has(key)) {
    if (measuring.widths.size > 20000) measuring.widths.clear();
    measuring.context.font = font;
    measuring.widths.set(key, measuring.context.measureText(string).width);
  }
  return measuring.widths.get(key);
}

function fontOf({ size = 11, weight = 400, mono = false }) {
  return `${weight} ${size}px ${mono ? MONO : SANS}`;
}

// `string` cut with … so that it takes at most `max` px; by letters, not by halves of them.
function cutText(string, max, font) {
  if (measureText(string, font) <= max) return string;
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
  }

  rect(x, y, w, h, { fill, stroke, width = 1, radius = 0, dash, hatch }) {
    const c = this.context;
    if (!radius && !stroke && !hatch) {
      c.fillStyle = fill;
      c.fillRect(x, y, w, h);
      return;
    }
    c.beginPath();
    const inset = stroke ? width / 2 : 0;
    if (radius) c.roundRect(x + inset, y + inset, Math.max(w - 2 * inset, 0), Math.max(h - 2 * inset, 0), radius);
    else c.rect(x + inset, y + inset, w - 2 * inset, h - 2 * inset);
    for (const style of [fill, hatch && this._hatch(hatch)]) {
      if (!style) continue;
      c.fillStyle = style;
      c.fill();
    }
    if (stroke) this._stroke(stroke, width, dash);
  }

  _stroke(stroke, width, dash) {
    const c = this.context;
    c.setLineDash(dash ?? []);
    c.strokeStyle = stroke;
    c.lineWidth = width;
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
    const c = this.context, font = fontOf(look);
    c.font = font;
    c.fillStyle = look.fill ?? this.p.ink;
    c.textAlign = look.align ?? "left";
    c.textBaseline = "middle";
    c.direction = "ltr";
    c.fillText(look.max === undefined ? string : cutText(string, look.max, font), x, y);
  }

  clip(x, y, w, h, draw) {
    const c = this.context;
    c.save();
    c.beginPath();
    c.rect(x, y, w, h);
    c.clip();
    draw();
    c.restore();
  }

  _path(points, { stroke, fill, width = 1, dash }) {
    const c = this.context;
    c.beginPath();
    points.forEach(([x, y], n) => (n ? c.lineTo(x, y) : c.moveTo(x, y)));
    if (fill) {
      c.closePath();
      c.fillStyle = fill;
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
    this.definitions.push(`<clipPath id="${name}"><rect x="${round2(x)}" y="${round2(y)}" width="${round2(w)}" height="${round2(h)}"/></clipPath>`);
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
