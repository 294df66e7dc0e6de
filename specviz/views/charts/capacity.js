// The scores of a round as bars, the largest first, and a line behind the last one that is verified.
// The line is dragged, or moved by the arrow keys. What it says is sent once it has come to rest.

const HEIGHT = { all: 168, top: 40, bottom: 124 }; // px; bars stand between top and bottom
const LEFT = 12;
const INK = "var(--jp-content-font-color1, var(--vscode-editor-foreground, currentColor))";
const VERIFIED = "rgb(60, 115, 215)"; // as in the map of scores
const LINE = "rgb(205, 92, 12)";
const STYLES = {
  box:
    `margin: 4px 8px; max-width: 100%; overflow-x: auto; color: ${INK}; ` +
    "font: 13px/1.4 var(--jp-ui-font-family, system-ui, sans-serif)",
  // A finger drags the line and does not scroll the page, and a mouse selects no text.
  line:
    "cursor: ew-resize; touch-action: none; user-select: none; display: block; outline-offset: -2px; " +
    "border-radius: 4px",
  said: `display: block; margin: 2px ${LEFT}px`,
};

function svg(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

function label(x, y, text, size = 11) {
  const looks = { x, y, "text-anchor": "middle", "font-size": size, fill: "currentColor" };
  return svg("text", looks, text);
}

/** What the line says: the sum of the scores left of it, and the first one right of it. */
function words(bars, capacity) {
  const sum = bars.slice(0, capacity).reduce((total, [, , score]) => total + score, 0);
  const next = bars[capacity];
  const rest = next ? `the next is ${next[2].toFixed(2)}, ${next[1]} of ${next[0]}` : "none is left out";
  return `C = ${capacity}: the scores left of the line add up to ${sum.toFixed(2)}; ${rest}.`;
}

function render({ model, el }) {
  const bars = model.get("bars");
  const step = Math.min(62, Math.max(16, 560 / bars.length));
  const width = LEFT * 2 + step * bars.length;
  const named = step >= 44;
  const picture = svg("svg", {
    width,
    height: HEIGHT.all,
    viewBox: `0 0 ${width} ${HEIGHT.all}`,
    role: "slider",
    tabindex: "0",
    "aria-label": model.get("name"),
    "aria-valuemin": 1,
    "aria-valuemax": bars.length,
  });
  picture.style.cssText = STYLES.line;
  const drawn = bars.map(([row, draft, score], n) => {
    const x = LEFT + n * step;
    const high = Math.max(score * (HEIGHT.bottom - HEIGHT.top), 1);
    const bar = svg("rect", { x: x + 3, y: HEIGHT.bottom - high, width: step - 6, height: high, rx: 3 });
    picture.append(bar);
    if (named) {
      picture.append(label(x + step / 2, HEIGHT.bottom - high - 4, score.toFixed(2)));
      picture.append(label(x + step / 2, HEIGHT.bottom + 15, row));
      picture.append(label(x + step / 2, HEIGHT.bottom + 29, draft));
    }
    return bar;
  });
  const line = svg("line", { y1: 22, y2: HEIGHT.bottom + 6, stroke: LINE, "stroke-width": 4 });
  const handle = svg("rect", { y: 5, width: 50, height: 20, rx: 10, fill: LINE });
  const name = label(0, 19, "", 12);
  name.setAttribute("fill", "#fff");
  picture.append(line, handle, name);
  const said = document.createElement("output");
  said.style.cssText = STYLES.said;
  let capacity = model.get("index") + 1;

  const tell = () => {
    const x = LEFT + capacity * step;
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    const at = Math.min(Math.max(x, 26), width - 26); // the handle stays in the picture
    handle.setAttribute("x", at - 25);
    name.setAttribute("x", at);
    name.textContent = `C = ${capacity}`;
    drawn.forEach((bar, n) => {
      bar.setAttribute("fill", n < capacity ? VERIFIED : "currentColor");
      bar.setAttribute("fill-opacity", n < capacity ? 1 : 0.22);
    });
    said.textContent = words(bars, capacity);
    picture.setAttribute("aria-valuenow", capacity);
    picture.setAttribute("aria-valuetext", said.textContent);
  };
  const move = (to) => {
    capacity = Math.min(Math.max(Math.round(to), 1), bars.length);
    tell();
  };
  const send = () => {
    model.set("index", capacity - 1);
    model.save_changes();
  };
  const follow = (event) => {
    const box = picture.getBoundingClientRect();
    move(((event.clientX - box.left) * (width / box.width) - LEFT) / step);
  };
  picture.addEventListener("pointerdown", (event) => {
    picture.setPointerCapture(event.pointerId);
    follow(event);
  });
  picture.addEventListener("pointermove", (event) => {
    if (picture.hasPointerCapture(event.pointerId)) follow(event);
  });
  picture.addEventListener("pointerup", send);
  picture.addEventListener("pointercancel", send);
  // Notebooks have other uses for the arrow keys: Notebook 7 heeds the attribute, JupyterLab does not.
  picture.dataset.lmSuppressShortcuts = "true";
  const keys = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -1e9, End: 1e9 };
  picture.addEventListener("keydown", (event) => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    event.stopPropagation();
    move(capacity + keys[event.key]);
    send();
  });
  const show = () => move(model.get("index") + 1);
  model.on("change:index", show);
  show();
  const box = document.createElement("div");
  box.style.cssText = STYLES.box;
  box.append(picture, said);
  el.append(box);
  return () => model.off("change:index", show);
}

export default { render };
