// Theme: whether the page is dark, asked where the page says so: JupyterLab, VS Code, Colab, and
// the reader's system elsewhere.

function darkPage() {
  const { body, documentElement } = document;
  const kind = body.dataset.vscodeThemeKind;
  if (body.dataset.jpThemeLight !== undefined) return body.dataset.jpThemeLight === "false";
  if (kind) return kind.includes("dark") || kind === "vscode-high-contrast";
  if (body.classList.contains("vscode-dark")) return true;
  if (documentElement.hasAttribute("theme"))
    return documentElement.getAttribute("theme") === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * @param {unknown} wanted "light", "dark", or anything else for that of the page
 */
export function themeNamed(wanted) {
  if (wanted === "light" || wanted === "dark") return wanted;
  return darkPage() ? "dark" : "light";
}

/**
 * Calls `changed` whenever the page may have become dark or light; `signal` ends that.
 * @param {() => void} changed
 * @param {AbortSignal} signal
 */
export function watchTheme(changed, signal) {
  const observer = new MutationObserver(changed);
  const watched = {
    attributes: true,
    attributeFilter: ["class", "theme", "data-jp-theme-light", "data-vscode-theme-kind"],
  };
  for (const node of [document.body, document.documentElement]) observer.observe(node, watched);
  signal.addEventListener("abort", () => observer.disconnect());
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
    matchMedia(query).addEventListener("change", changed, { signal });
  }
}
