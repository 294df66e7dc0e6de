// Render: what the notebook calls for each place where a widget is to be seen. Unpacks the runs, and says so where that fails.

const STILL_MS = 500; // after the widget is there

// For the notebook that will be kept without its kernel: a picture of what is shown first, if Python asks for one. Drawn when there is
// nothing else to do.
function sendStill(model, films, root) {
  const wanted = model.get("_still_wanted");
  if (!wanted) return;
  const send = () => {
    if (!root.isConnected || !model.get("_still_wanted")) return;
    model.set("_still", drawFigure(films, { ...wanted, step: model.get("step"), row: model.get("row") }, root));
    try {
      model.save_changes();
    } catch { /* no kernel any more: nobody is left to keep it */ }
  };
  setTimeout(() => (window.requestIdleCallback ?? setTimeout)(send), STILL_MS);
}

function render({ model, el }) {
  const attributes = { class: "specviz", tabindex: "0", role: "group", "aria-label": "step-through of a decoding run; press ? for keys" };
  const root = element("div", { ...attributes, "data-lm-suppress-shortcuts": "true" }, "opening the run …"); // JupyterLab's shortcuts
  el.append(root);
  let shell = null, gone = false;
  const bytes = ["film", "other"].map((name) => model.get(name)).filter((each) => each?.byteLength);
  Promise.all(bytes.map(decodeFilm)).then((films) => {
    if (gone) return;
    shell = new Shell(model, root, films);
    sendStill(model, films, root);
  }).catch((error) => {
    root.textContent = `This run cannot be shown: ${error.message}`;
    console.error(error);
  });
  return () => {
    gone = true;
    shell?.dispose();
    root.remove();
  };
}

export default { render };
