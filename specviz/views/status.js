// The line under the form of sv.lab(): the text of the kernel, and that the kernel has ended, which
// it cannot say itself.

const ENDED = new Set(["dead", "terminating", "restarting", "autorestarting"]);
const GONE = "The kernel has ended: run this cell again.";

function render({ model, el }) {
  const line = document.createElement("p");
  line.setAttribute("role", "status");
  line.style.margin = "0 8px";
  el.append(line);
  const kernel = model.widget_manager?.kernel;
  let ended = false;
  const show = () => {
    line.textContent = ended ? GONE : model.get("value");
  };
  const check = () => {
    ended ||= Boolean(kernel?.isDisposed) || ENDED.has(kernel?.status);
    show();
  };
  model.on("change:value", show);
  kernel?.statusChanged?.connect(check);
  kernel?.disposed?.connect(check);
  check();
  return () => {
    model.off("change:value", show);
    kernel?.statusChanged?.disconnect(check);
    kernel?.disposed?.disconnect(check);
  };
}

export default { render };
