// Ahead: while there is nothing else to do, draws the step that comes next on the reader's way,
// forward or back, out of sight, a panel at a time, so that to go there is only to show it.

/** @import { Section } from "./section.js" */
/** @import { Shell } from "./shell.js" */

export class Ahead {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
    /** @type {Section[]} */
    this.rest = [];
    /** @type {(work: () => void) => unknown} */
    this.idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 50));
  }

  // To be called whenever something else is shown; what was begun for that before is given up.
  plan() {
    const { runs, ends, clock, clocks, way } = this.shell;
    const to = clock + way;
    const rest = this.shell.sections.slice(1); // without the map
    const work = () => {
      if (this.rest !== rest || !rest.length || ends.signal.aborted) return;
      this._asIfAt(to, () => rest.shift()?.prepare());
      this.idle.call(window, work);
    };
    this.rest = rest;
    if (
      to >= 0 &&
      to < clocks &&
      runs.every((run) => run.view.progress === 1) &&
      window.OffscreenCanvas
    )
      this.idle.call(window, work);
  }

  /**
   * Calls `draw` with the runs' views as they will be once the reader goes there.
   * @param {number} clock
   * @param {() => void} draw
   */
  _asIfAt(clock, draw) {
    const { shell } = this;
    const { request, missing } = shell;
    const views = shell.runs.map((run) => ({ ...run.view }));
    try {
      shell.move(clock, clock === shell.clock + 1);
      draw();
    } finally {
      shell.runs.forEach((run, n) => {
        Object.assign(run.view, views[n]);
        run.turnLens();
      });
      Object.assign(shell, { request, missing });
    }
  }
}
