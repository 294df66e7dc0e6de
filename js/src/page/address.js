// Address: keeps the address of an exported page at the step that is shown, and the page at the step
// that its address names.

import { linkTo, placeOfLink } from "./link.js";

/** @import { Extent } from "./link.js" */
/** @import { Shell } from "./shell.js" */

const REST_MS = 250; // browsers refuse addresses that change many times a second

/**
 * @param {Shell} shell
 * @param {Extent} extent
 */
export function followAddress(shell, extent) {
  let timer = 0;
  const { signal } = shell.ends;
  const go = () => {
    const place = placeOfLink(extent, location.hash);
    if (!place) return;
    shell.go(place.step, place.row);
    shell.notice.say(place.wrong);
  };
  const write = () => {
    const link = linkTo(extent, { step: shell.clock, row: shell.runs[0].view.row });
    if (link === location.hash) return;
    try {
      history.replaceState(null, "", link);
    } catch {
      // A page inside another one may have no address of its own.
    }
  };
  const watch = new MutationObserver(() => {
    clearTimeout(timer);
    timer = window.setTimeout(write, REST_MS);
  });
  go();
  watch.observe(shell.root, { attributeFilter: ["data-step", "data-row"] });
  window.addEventListener("hashchange", go, { signal });
  signal.addEventListener("abort", () => watch.disconnect());
}
