// A slider over a few values: its name, the browser's own slider, and the value in words. The value
// is sent once the slider has come to rest.

const STYLES = {
  line:
    "display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; margin: 4px 8px; " +
    "color: var(--jp-content-font-color1, var(--vscode-editor-foreground, inherit)); " +
    "font: 13px/1.4 var(--jp-ui-font-family, system-ui, sans-serif)",
  name: "min-width: 80px; text-align: right",
  slider: "width: 260px; margin: 0; accent-color: var(--jp-brand-color1, #2a5fcf)",
  value: "min-width: 60px; font-variant-numeric: tabular-nums",
};

function element(tag, style, attributes = {}) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.style.cssText = style;
  return made;
}

function render({ model, el }) {
  const id = `specviz-${crypto.getRandomValues(new Uint32Array(1))[0]}`; // a page has several
  const words = model.get("words");
  const name = element("label", STYLES.name, { htmlFor: id, textContent: model.get("name") });
  const most = String(words.length - 1);
  const slider = element("input", STYLES.slider, { id, type: "range", min: "0", max: most });
  const value = element("output", STYLES.value, { htmlFor: id });
  const tell = () => {
    value.textContent = words[Number(slider.value)];
    slider.setAttribute("aria-valuetext", value.textContent);
  };
  const show = () => {
    slider.value = String(model.get("index"));
    tell();
  };
  // Notebooks have other uses for the arrow keys: Notebook 7 heeds the attribute, JupyterLab does not.
  slider.dataset.lmSuppressShortcuts = "true";
  slider.addEventListener("keydown", (event) => {
    if (/^(Arrow|Page|Home|End)/.test(event.key)) event.stopPropagation();
  });
  slider.addEventListener("input", tell);
  slider.addEventListener("change", () => {
    model.set("index", Number(slider.value));
    model.save_changes();
  });
  model.on("change:index", show);
  show();
  const line = element("div", STYLES.line);
  line.append(name, slider, value);
  el.append(line);
  return () => model.off("change:index", show);
}

export default { render };
