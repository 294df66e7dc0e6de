// MapLegend: what the colours and signs of the map mean, of those that the runs have.

import { fontOf, measureText } from "../draw/text.js";
import { drawEnd, drawEntry, drawSign } from "./lanepaint.js";
import { drawBubble } from "./strippaint.js";

/** @import { Pen } from "../types.d.ts" */
/** @import { RunMap } from "./runmap.js" */

const LINE = 17;
const SAMPLE = 16; // px, with what lies between it and its words

export class MapLegend {
  /** @param {RunMap} map */
  constructor(map) {
    const { tallies, parts } = map;
    /** @param {string} name */
    const any = (name) =>
      tallies.some((tally) =>
        tally.lanes.some((blocks) => blocks.some((block) => tally.has(block, name))),
      );
    const lanes = tallies.some(({ begins }) => begins);
    const waits = tallies.some((tally) => tally.waits.some((all) => all.length));
    /** @type {[show: boolean, kind: string, words: string][]} */
    const all = [
      [true, "accepted", "accepted"],
      [true, "own", "bonus"],
      [true, "thrown", "thrown away"],
      [waits, "waits", "waits"],
      [any("refill"), "refill", "enters"],
      [any("eos"), "eos", "EOS"],
      [any("budget"), "budget", "budget spent"],
      [any("stopped"), "stopped", "stopped"],
      [any("moved") || tallies.some(({ copies }) => copies), "moved", "K/V copied"],
      [any("violation"), "violation", "violation, ▲ the first"],
      [lanes, "drafts", "lane drafts"],
      [lanes, "verifies", "lane verifies"],
      [lanes, "bubble", "bubble: the lane waits"],
      [parts.some((each) => each.some((round) => round >= 0)), "parts", "text differs from here"],
    ];
    this.entries = all.filter(([show]) => show).map(([, kind, words]) => ({ kind, words }));
  }

  key() {
    return "";
  }

  describe() {
    return `Legend of the map: ${this.entries.map(({ words }) => words).join("; ")}.`;
  }

  /** @param {number} width */
  _places(width) {
    let x = 12;
    let y = 8;
    return this.entries.map(({ kind, words }) => {
      const w = SAMPLE + 4 + measureText(words, fontOf({ size: 11 })) + 14;
      if (x > 12 && x + w > width) [x, y] = [12, y + LINE];
      const place = { kind, words, x, y };
      x += w;
      return place;
    });
  }

  /** @param {number} width */
  height(width) {
    return (this._places(width).at(-1)?.y ?? 0) + 9;
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    for (const { kind, words, x, y } of this._places(width)) {
      this._sample(pen, kind, x, y);
      pen.text(words, x + SAMPLE + 4, y, { size: 11, fill: pen.p.muted });
    }
  }

  /**
   * @param {Pen} pen
   * @param {string} kind
   * @param {number} x
   * @param {number} y
   */
  _sample(pen, kind, x, y) {
    const { p } = pen;
    /** @type {Record<string, () => void>} */
    const samples = {
      accepted: () => pen.rect(x, y - 4, SAMPLE, 8, { fill: p.green }),
      own: () => pen.rect(x, y - 4, SAMPLE, 8, { fill: p.bonus }),
      thrown: () => pen.rect(x, y + 1, SAMPLE, 3, { fill: p.stale }),
      waits: () => pen.line(x, y + 0.5, x + SAMPLE, y + 0.5, { stroke: p.grey, dash: [1, 3] }),
      refill: () => drawEntry(pen, x + 11, y - 4, 8),
      moved: () => pen.rect(x, y + 2, SAMPLE, 1.5, { fill: p.blue }),
      violation: () => {
        pen.rect(x, y - 4, SAMPLE, 8, { fill: p.green });
        pen.rect(x, y - 4, SAMPLE, 2, { fill: p.red });
      },
      drafts: () => pen.rect(x, y - 4, SAMPLE, 8, { fill: p.draft }),
      verifies: () => pen.rect(x, y - 4, SAMPLE, 8, { fill: p.target }),
      bubble: () => drawBubble(pen, x, y - 4, SAMPLE, 8),
      parts: () => drawSign(pen, "≠", x + 8, y, p.ink),
    };
    if (samples[kind]) samples[kind]();
    else drawEnd(pen, kind, x + 4, y - 4, 8);
  }
}
