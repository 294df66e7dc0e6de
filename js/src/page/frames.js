// Frames: draws once a frame what has changed since.

/** @import { Section } from "./section.js" */

export class Frames {
  /** @param {(sections: Section[]) => void} draw */
  constructor(draw) {
    this.draw = draw;
    /** @type {Set<Section>} */
    this.dirty = new Set();
    this.coming = 0; // the request for a frame in which to draw
    this.drawn = 0; // that for the next frame, where this one has been drawn at once
  }

  /** @param {Section} section */
  touch(section) {
    this.dirty.add(section);
    this.coming ||= requestAnimationFrame(() => this.paint());
  }

  // For what a reader asked for: the work is done by the time the next frame begins. Of what comes
  // faster than frames do, such as from a slider that is dragged, the rest is left to that frame.
  paintAtOnce() {
    if (this.drawn) return;
    this.drawn = requestAnimationFrame(() => {
      this.drawn = 0;
    });
    this.paint();
  }

  paint() {
    this.stop();
    const sections = [...this.dirty];
    // Cleared first: what is touched while these are drawn waits for the next frame.
    this.dirty.clear();
    this.draw(sections);
  }

  stop() {
    cancelAnimationFrame(this.coming);
    this.coming = 0;
  }
}
