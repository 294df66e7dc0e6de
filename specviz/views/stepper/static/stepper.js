// Written by esbuild from js/src: edit there, then run 'make js'.

// src/draw/elements.js
var ICONS = {
  first: "M4 3v10M13 3L6 8l7 5z",
  back: "M9 3L4 8l5 5M14 3L9 8l5 5",
  previous: "M10.5 3L5 8l5.5 5",
  play: "M5 2.5v11l8.5-5.5z",
  pause: "M5 3v10M11 3v10",
  next: "M5.5 3L11 8l-5.5 5",
  ahead: "M2 3l5 5-5 5M7 3l5 5-5 5",
  last: "M12 3v10M3 3l7 5-7 5z",
  minus: "M3.5 8h9",
  plus: "M3.5 8h9M8 3.5v9",
  full: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  fit: "M1.5 3v10M14.5 3v10M4 8h8M6 5.5L3.5 8 6 10.5M10 5.5L12.5 8 10 10.5"
}, LONG = 30, FILLED = /* @__PURE__ */ new Set(["first", "play", "last"]);
function element(tag, attributes2 = {}, ...children) {
  let made = document.createElement(tag);
  for (let [name, value] of Object.entries(attributes2))
    if (name === "on")
      for (let [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else value != null && value !== !1 && made.setAttribute(name, value === !0 ? "" : value);
  return made.append(...children), made;
}
function icon(name) {
  let [svg, path] = ["svg", "path"].map(
    (name2) => document.createElementNS("http://www.w3.org/2000/svg", name2)
  ), attributes2 = { viewBox: "0 0 16 16", width: "16", height: "16", "aria-hidden": "true" };
  for (let [key, value] of Object.entries(attributes2)) svg.setAttribute(key, value);
  return path.setAttribute("d", ICONS[name]), path.setAttribute("class", FILLED.has(name) ? "sv-filled" : "sv-drawn"), svg.append(path), svg;
}
function iconButton(name, label, keys, click) {
  let title = keys ? `${label} (${keys})` : label;
  return element(
    "button",
    { type: "button", class: "sv-icon", "aria-label": label, title, on: { click } },
    icon(name)
  );
}
function setText(node, text) {
  node.textContent !== text && (node.textContent = text);
}
function setAttribute(node, name, value) {
  node.getAttribute(name) !== value && node.setAttribute(name, value);
}
function setUsable(button, usable) {
  setAttribute(button, "aria-disabled", String(!usable));
}
function tableElement({ caption, head, rows }) {
  let row = (cells, make) => element("tr", {}, ...cells.map((cell) => make(String(cell ?? "")))), heading = (text) => text ? element("th", { scope: "col" }, text) : element("td"), body = rows.map(
    (cells) => row(cells, (text) => element("td", { class: text.length > LONG ? "sv-long" : null }, text))
  ), words = caption ? [element("caption", {}, caption)] : [];
  return element(
    "table",
    {},
    ...words,
    element("thead", {}, row(head, heading)),
    element("tbody", {}, ...body)
  );
}

// src/film/tally.js
var Tally = class {
  /** @param {Film} film */
  constructor(film) {
    let { rounds, requests, waits, gaps } = film.json;
    this.film = film, this.rounds = rounds.length, this.lanes = this._blocks(), this.waits = requests.map(() => []);
    for (let [request, first2, stop] of waits) this.waits[request].push([first2, stop]);
    this._sums = this._addUp(), this.starts = runningSums(rounds.map(({ ms }) => sumOf(ms))), this.timed = !gaps?.time && this.starts[this.rounds] > 0, this.told = rounds.every(({ bytes }) => bytes !== null);
    let all = rounds.map(({ ms }) => sumOf(ms)), common = [...all].sort((a, b) => a - b)[Math.floor(all.length * 0.9)];
    this.slowest = Math.max(Math.min(Math.max(...all, 0), common * 1.25 || 1 / 0), 1e-9), this.heaviest = Math.max(...rounds.map(({ bytes }) => bytes ?? 0), 0), this.copies = this.heaviest > 0;
    let [first] = film.violations;
    this.first = first ? { round: first.round, request: first.request } : null;
  }
  /** @returns {Block[][]} */
  _blocks() {
    let { rounds, requests } = this.film.json, lanes2 = requests.map(() => []);
    return rounds.forEach(
      ({ rows, map }, round) => map.forEach(
        ([accepted, own, thrown, signs], row) => lanes2[rows[row].request].push({ round, row, accepted, own, thrown, signs })
      )
    ), lanes2;
  }
  // A row that has ended and stays in the batch counts in no rate.
  _addUp() {
    let { rounds, phases } = this.film.json, working = rounds.map(({ rows }) => rows.filter(({ gained }) => gained > 0)), column = (name) => runningSums(working.map((rows) => sumOf(rows.map((row) => row[name]))));
    return {
      tokens: column("gained"),
      accepted: column("accepted"),
      verified: column("verified"),
      rows: runningSums(working.map((rows) => rows.length)),
      bytes: runningSums(rounds.map(({ bytes }) => bytes ?? 0)),
      ms: phases.map((_, phase) => runningSums(rounds.map(({ ms }) => ms[phase])))
    };
  }
  /**
   * Whether something of SIGNS happened in a block.
   * @param {Block} block
   * @param {string} name
   */
  has({ signs }, name) {
    return (signs >> this.film.json.signs.indexOf(name) & 1) === 1;
  }
  /**
   * Of the rounds [first, stop).
   * @param {number} first
   * @param {number} stop
   * @returns {Totals}
   */
  totals(first, stop) {
    let over = (sums) => sums[stop] - sums[first], { tokens, accepted, verified, rows, bytes, ms } = this._sums;
    return {
      first,
      stop,
      tokens: over(tokens),
      accepted: over(accepted),
      verified: over(verified),
      rows: over(rows),
      bytes: this.told ? over(bytes) : null,
      ms: ms.map(over),
      all: over(this.starts)
    };
  }
  /**
   * New tokens of all requests before a round.
   * @param {number} round
   */
  tokensBefore(round) {
    return this._sums.tokens[round];
  }
  /**
   * The block of a request in a round; null while it is not in the batch.
   * @param {number} request
   * @param {number} round
   */
  block(request, round) {
    return this.lanes[request]?.find((each) => each.round === round) ?? null;
  }
  /**
   * The round in which a request emits the token of an index; -1 where it never does.
   * @param {number} request
   * @param {number} index
   */
  roundOf(request, index) {
    let { rounds } = this.film.json;
    return this.lanes[request].find(({ round, row }) => {
      let { length, gained } = rounds[round].rows[row];
      return index >= length && index < length + gained;
    })?.round ?? -1;
  }
};
function sumOf(values) {
  return values.reduce((sum, value) => sum + value, 0);
}
function runningSums(values) {
  let sums = [0];
  for (let value of values) sums.push(sums[sums.length - 1] + value);
  return sums;
}

// src/film/tree.js
function parentOf(entry, j) {
  return entry.parents ? entry.parents[j] : j - 1;
}
function branches({ parents }) {
  return parents?.some((parent, j) => parent !== j - 1) ?? !1;
}
function hasTrees({ json }) {
  return json.rounds.some((round) => round.rows.some((row) => row.parents !== void 0));
}
function depthOf(entry, j) {
  return lineOf(entry, j).length;
}
function lineOf(entry, j) {
  let line = [];
  for (let draft = j; draft >= 0; draft = parentOf(entry, draft)) line.unshift(draft);
  return line;
}
function lastOf(entry) {
  return entry.path ? entry.path.at(-1) ?? -1 : entry.accepted - 1;
}
function isAccepted(entry, j) {
  return entry.path ? entry.path.includes(j) : j < entry.accepted;
}
function turnedDown(entry) {
  let last = lastOf(entry);
  for (let j = 0; j < entry.verified; j++) if (parentOf(entry, j) === last) return j;
  return -1;
}
function isFull(entry) {
  return entry.verified > 0 && turnedDown(entry) < 0;
}
function slotsOf(film, step, row) {
  let entry = film.rows(step)[row], phase = film.phase(step), shift = phase === 4 ? entry.start_after - entry.start : 0, moved = phase < 3 ? /* @__PURE__ */ new Map() : compacted(film, step, row);
  return entry.drafts.map((token, j) => {
    if (phase === 0) return null;
    let first = entry.pending + 1 + j, slot = (moved.get(first) ?? first) + shift, cell = film.cell(step, "tokens", row, slot);
    return cell?.token === token && cell.index === entry.length + depthOf(entry, j) - 1 ? slot : null;
  });
}
function compacted(film, step, row) {
  let moved = /* @__PURE__ */ new Map(), { moves } = film.stage(film.step(film.round(step), "accept"));
  for (let [model, , from, fromSlot, to, toSlot, length] of moves)
    if (!(model !== 0 || from !== row || to !== row))
      for (let n = 0; n < length; n++) moved.set(fromSlot + n, toSlot + n);
  return moved;
}
function draftAt(film, step, row, place) {
  return !place || place.row !== row || !film.rows(step)[row]?.parents ? -1 : place.draft !== void 0 ? place.draft : place.slot === null ? -1 : slotsOf(film, step, row).indexOf(place.slot);
}
function treeNodes(film, step, row) {
  let entry = film.rows(step)[row];
  if (!entry || film.phase(step) === 0) return [];
  let slots = slotsOf(film, step, row);
  return entry.drafts.map((token, j) => {
    let parent = parentOf(entry, j), siblings = entry.drafts.flatMap((_, k) => parentOf(entry, k) === parent ? [k] : []);
    return {
      number: j,
      parent,
      depth: depthOf(entry, j),
      token,
      rank: siblings.indexOf(j) + 1,
      siblings: siblings.length,
      slot: slots[j]
    };
  });
}

// src/film/film.js
var EMPTY_CELL = { kind: "empty", index: -1, position: -1, request: -1, token: -1, origin: "" }, WORDS = {
  empty: "empty",
  padding: "padding",
  p: "prompt",
  a: "accepted earlier",
  b: "bonus of an earlier round",
  drafted: "drafted, not judged yet",
  stale: "stale: K/V that no longer counts",
  pending: "pending: its K/V does not exist yet",
  accepted_now: "accepted now",
  bonus_now: "bonus, now pending",
  rejected_now: "rejected, its K/V is stale",
  discarded_now: "verified, but thrown away",
  unreached_now: "not reached, its K/V is stale",
  wrong_now: "not the target's own token, now pending",
  unverified: "drafted, not verified"
};
async function decodeFilm(bytes) {
  let stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Film(JSON.parse(await new Response(stream).text()));
}
function unfoldLanes(lanes2) {
  lanes2.forEach((lane, n) => {
    typeof lane[0] == "number" && (lanes2[n] = [...lanes2[lane[0]].slice(0, lane[1]), ...lane.slice(2)]);
  });
}
function unfoldHoles({ rounds, holes }) {
  for (let { stages } of rounds)
    for (let { feeds } of stages) for (let feed of feeds) feed[9] = holes[feed[9]];
}
var Film = class {
  /** @param {FilmJson} json */
  constructor(json) {
    this.json = json, unfoldLanes(json.lanes), unfoldHoles(json), this.phases = json.phases.length, this.steps = json.rounds.length * this.phases, this._gains = this._sumGains(), this.mostRows = Math.max(...json.rounds.map(({ rows }) => rows.length), 1);
    let capacities = json.rounds.flatMap(({ capacity }) => capacity ?? []);
    this.capacity = capacities.length ? Math.max(...capacities) : void 0, this.checked = json.violations !== null, this.knowsChoices = this.checked && !json.gaps?.choices, this._violations = (json.violations ?? []).map((each) => ({
      ...each,
      step: each.round * this.phases + each.phase
    })), this._points = /* @__PURE__ */ new Map(), this._drifts = void 0, this._tally = void 0;
  }
  /** What the run adds up to, counted when it is first asked for. */
  get tally() {
    return this._tally ??= new Tally(this), this._tally;
  }
  /** @param {number} step */
  round(step) {
    return Math.floor(step / this.phases);
  }
  /** @param {number} step */
  phase(step) {
    return step % this.phases;
  }
  /** @param {number} step */
  phaseName(step) {
    return this.json.phases[this.phase(step)];
  }
  /** @param {number} step */
  scene(step) {
    return this.json.rounds[this.round(step)];
  }
  /** @param {number} step */
  stage(step) {
    return this.scene(step).stages[this.phase(step)];
  }
  /** @param {number} step */
  rows(step) {
    return this.scene(step).rows;
  }
  /** @param {number} step */
  judged(step) {
    return this.phase(step) >= 3;
  }
  /**
   * @param {number} round
   * @param {string} phaseName
   */
  step(round, phaseName) {
    return round * this.phases + this.json.phases.indexOf(phaseName);
  }
  /** @param {number | null | undefined} id */
  text(id) {
    return id == null ? "" : this.json.texts[id] ?? (id < 0 ? "" : `#${id}`);
  }
  /**
   * @param {number} request
   * @param {number} index
   */
  token(request, index) {
    return this.json.requests[request]?.tokens[index];
  }
  /**
   * @param {number} step
   * @param {number} request
   */
  rowOf(step, request) {
    return this.rows(step).findIndex((row) => row.request === request);
  }
  /**
   * @param {number} step
   * @param {LaneName} which
   * @param {number} row
   */
  lane(step, which, row) {
    return this.json.lanes[this.stage(step)[which][row]] ?? [];
  }
  /**
   * What a slot of a lane holds; a run is [slot, stop, kind, index, position, request, tokens].
   * @param {number} step
   * @param {LaneName} which
   * @param {number} row
   * @param {number} slot
   */
  cell(step, which, row, slot) {
    let run = this.lane(step, which, row).find((each) => slot >= each[0] && slot < each[1]);
    return run ? this.cellOf(run, slot) : null;
  }
  /**
   * @param {LaneRun} run
   * @param {number} slot
   */
  cellOf(run, slot) {
    let [first, , code, index, position, request, tokens] = run, kind = this.json.kinds[code], at = slot - first;
    if (index < 0) return { ...EMPTY_CELL, kind };
    let token = tokens ? tokens[at] : this.token(request, index + at), origin = kind === "held" ? this.json.requests[request].origins[index + at] : "";
    return {
      kind,
      index: index + at,
      position: position < 0 ? -1 : position + at,
      request,
      token,
      origin
    };
  }
  /** @param {Cell} cell */
  wordOf(cell) {
    return WORDS[cell.kind === "held" ? cell.origin : cell.kind] ?? cell.kind;
  }
  /** @param {number} step */
  violationsAt(step) {
    return this.stage(step).violations.map((number) => this._violations[number]);
  }
  get violations() {
    return this._violations;
  }
  // Whether any token's position is known not to be its index.
  get drifts() {
    let drifting = ([, , , index, position]) => position >= 0 && position !== index;
    return this._drifts ??= this.checked && this.json.lanes.some((lane) => lane.some(drifting)), this._drifts;
  }
  /**
   * Rows whose last token of the round, judged by now, is known not to be the target's choice.
   * @param {number} step
   */
  wrongEnds(step) {
    let found = this.judged(step) ? this.violationsAt(this.step(this.round(step), "accept")) : [];
    return new Set(found.filter((each) => each.rule === "bonus").map((each) => each.row));
  }
  /**
   * The draft that a row of the round rejected for another token; null where there is none.
   * @param {RowEntry} at
   */
  rejectedDraft(at) {
    let { drafts, verified, accepted, gained, discarded, emitted } = at;
    if (branches(at)) {
      let draft = gained > accepted && !discarded ? turnedDown(at) : -1;
      return draft < 0 || drafts[draft] === emitted[accepted] ? null : drafts[draft];
    }
    return accepted < verified && gained > accepted && !discarded && emitted[accepted] !== drafts[accepted] ? drafts[accepted] : null;
  }
  /**
   * New tokens of all requests up to and including a step.
   * @param {number} step
   */
  committed(step) {
    return this._gains[this.round(step) + (this.judged(step) ? 1 : 0)];
  }
  _sumGains() {
    let sums = [0];
    for (let round of this.json.rounds)
      sums.push(sums[sums.length - 1] + round.rows.reduce((sum, row) => sum + row.gained, 0));
    return sums;
  }
  /**
   * The steps at which something happens: "rejection", "full", "violation" or "eos".
   * @param {string} what
   */
  points(what) {
    let found = this._points.get(what) ?? this._find(what);
    return this._points.set(what, found), found;
  }
  /** @param {string} what */
  _find(what) {
    if (what === "violation")
      return [...new Set(this._violations.map((each) => each.step))].sort((a, b) => a - b);
    let eos = new Set(this.json.meta.eos_token_ids), events = {
      rejection: (row) => row.gained > 0 && row.verified > 0 && !isFull(row),
      full: isFull,
      eos: (row) => row.emitted.some((token) => eos.has(token))
    };
    return this.json.rounds.flatMap(
      (round, number) => round.rows.some(events[what]) ? [this.step(number, "accept")] : []
    );
  }
  /**
   * @param {number} step
   * @param {string} what
   * @param {number} [direction]
   */
  next(step, what, direction = 1) {
    let points = this.points(what);
    return (direction > 0 ? points.find((each) => each > step) : points.findLast((each) => each < step)) ?? null;
  }
};

// src/draw/text.js
var SANS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif", MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace", Kept = class {
  /** @param {number} [most] */
  constructor(most = 200) {
    this.most = most, this.found = /* @__PURE__ */ new Map();
  }
  /**
   * @param {string | number} key
   * @param {() => V} make
   * @returns {V}
   */
  get(key, make) {
    let known = this.found.get(key);
    if (known !== void 0) return known;
    this.found.size >= this.most && this.found.clear();
    let made = make();
    return this.found.set(key, made), made;
  }
}, measuring = null, widths = new Kept(), cuts = new Kept(2e4), fonts = new Kept();
function contextOf(canvas, options) {
  return (
    /** @type {CanvasRenderingContext2D} */
    canvas.getContext("2d", options)
  );
}
function measureText(string, font) {
  return widths.get(font, () => new Kept(2e4)).get(string, () => (measuring ??= contextOf(document.createElement("canvas")), measuring.font = font, measuring.measureText(string).width));
}
function familyOf({ mono = !1 }) {
  return mono ? MONO : SANS;
}
function fontOf({ size = 11, weight = 400, mono = !1 }) {
  let key = weight + size / 100 + (mono ? 0.5 : 0);
  return fonts.get(key, () => `${weight} ${size}px ${familyOf({ mono })}`);
}
function cutText(string, max, font) {
  return measureText(string, font) <= max ? string : cuts.get(`${max} ${font}${string}`, () => cutLetters(string, max, font));
}
function cutLetters(string, max, font) {
  let letters = [...string], low = 0, high = letters.length;
  for (; low < high; ) {
    let middle = Math.ceil((low + high) / 2);
    measureText(`${letters.slice(0, middle).join("")}\u2026`, font) <= max ? low = middle : high = middle - 1;
  }
  return low ? `${letters.slice(0, low).join("")}\u2026` : "";
}

// src/draw/pen.js
var PALETTE = [
  "ink",
  "muted",
  "faint",
  "panel",
  "page",
  "blue",
  "blueSoft",
  "green",
  "greenSoft",
  "orange",
  "orangeSoft",
  "amber",
  "amberSoft",
  "bonus",
  "red",
  "redSoft",
  "grey",
  "greySoft",
  "target",
  "draft",
  "stale",
  "held",
  "prompt",
  "row0",
  "row1",
  "row2",
  "row3",
  "row4",
  "row5"
];
function readPalette(element2) {
  let style = getComputedStyle(element2), dashed = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  return Object.fromEntries(
    PALETTE.map((name) => [name, style.getPropertyValue(`--sv-${dashed(name)}`).trim() || "#888"])
  );
}
var Pen = class {
  /** @param {Palette} palette */
  constructor(palette) {
    this.p = palette;
  }
  /**
   * @param {string} string
   * @param {TextLook} [look]
   */
  measure(string, look = {}) {
    return measureText(string, fontOf(look));
  }
  /**
   * @param {string} string
   * @param {number} max
   * @param {TextLook} [look]
   */
  cut(string, max, look = {}) {
    return cutText(string, max, fontOf(look));
  }
  /**
   * @param {number[][]} _points
   * @param {BoxLook} _look
   */
  _path(_points, _look) {
  }
  /**
   * @param {number} x1
   * @param {number} y1
   * @param {number} x2
   * @param {number} y2
   * @param {LineLook} at
   */
  line(x1, y1, x2, y2, { stroke, width = 1, dash, arrow = !1 }) {
    if (this._path(
      [
        [x1, y1],
        [x2, y2]
      ],
      { stroke, width, dash }
    ), !arrow) return;
    let angle = Math.atan2(y2 - y1, x2 - x1), size = 4 + width, wing = (turn) => [x2 - size * Math.cos(angle + turn), y2 - size * Math.sin(angle + turn)];
    this._path([wing(0.5), [x2, y2], wing(-0.5)], { fill: stroke });
  }
}, CanvasPen = class extends Pen {
  /**
   * @param {Palette} palette
   * @param {CanvasRenderingContext2D} context
   */
  constructor(palette, context) {
    super(palette), this.context = context, this._hatches = /* @__PURE__ */ new Map(), this._state = {}, this.forget();
  }
  // Setting a property of the context is most of what drawing costs, so none is set twice to the
  // same value. To be called when the context may have lost its properties.
  forget() {
    this._state = {}, Object.assign(this.context, { textBaseline: "middle", direction: "ltr" });
  }
  /**
   * @param {string} name
   * @param {unknown} value
   */
  _set(name, value) {
    this._state[name] !== value && (this._state[name] = value, this.context[name] = value);
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   * @param {BoxLook} at
   */
  rect(x, y, w, h, { fill, stroke, width = 1, radius = 0, dash, hatch }) {
    let c = this.context;
    if (!radius && !stroke && !hatch) {
      this._set("fillStyle", fill), c.fillRect(x, y, w, h);
      return;
    }
    c.beginPath();
    let inset = stroke ? width / 2 : 0;
    radius ? c.roundRect(
      x + inset,
      y + inset,
      Math.max(w - 2 * inset, 0),
      Math.max(h - 2 * inset, 0),
      radius
    ) : c.rect(x + inset, y + inset, w - 2 * inset, h - 2 * inset);
    for (let style of [fill, hatch && this._hatch(hatch)])
      style && (this._set("fillStyle", style), c.fill());
    stroke && this._stroke(stroke, width, dash);
  }
  /**
   * @param {string} stroke
   * @param {number} width
   * @param {number[] | undefined} dash
   */
  _stroke(stroke, width, dash) {
    let c = this.context, pattern = dash ?? [], key = pattern.join();
    this._state.dash !== key && c.setLineDash(pattern), this._state.dash = key, this._set("strokeStyle", stroke), this._set("lineWidth", width), c.stroke();
  }
  /** @param {string} colour */
  _hatch(colour) {
    if (!this._hatches.has(colour)) {
      let tile = document.createElement("canvas"), scale = Math.max(window.devicePixelRatio || 1, 1);
      tile.width = tile.height = 6 * scale;
      let c = contextOf(tile);
      c.scale(scale, scale), c.strokeStyle = colour, c.lineWidth = 1.5;
      for (let x of [-6, 0, 6])
        c.beginPath(), c.moveTo(x, 6), c.lineTo(x + 6, 0), c.stroke();
      let pattern = (
        /** @type {CanvasPattern} */
        this.context.createPattern(tile, "repeat")
      );
      pattern.setTransform(new DOMMatrix().scale(1 / scale)), this._hatches.set(colour, pattern);
    }
    return this._hatches.get(colour);
  }
  /**
   * @param {string} string
   * @param {number} x
   * @param {number} y
   * @param {TextLook} look
   */
  text(string, x, y, look) {
    let font = fontOf(look), shown = look.max === void 0 ? string : cutText(string, look.max, font);
    shown !== "" && (this._set("font", font), this._set("fillStyle", look.fill ?? this.p.ink), this._set("textAlign", look.align ?? "left"), this.context.fillText(shown, x, y));
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   * @param {() => void} draw
   */
  clip(x, y, w, h, draw) {
    let c = this.context;
    c.save(), c.beginPath(), c.rect(x, y, w, h), c.clip(), draw(), this._restore();
  }
  /**
   * Draw what follows moved by (x, y).
   * @param {number} x
   * @param {number} y
   * @param {() => void} draw
   */
  shifted(x, y, draw) {
    this.context.save(), this.context.translate(x, y), draw(), this._restore();
  }
  _restore() {
    this.context.restore(), this.forget();
  }
  /**
   * @param {number[][]} points
   * @param {BoxLook} at
   */
  _path(points, { stroke, fill, width = 1, dash }) {
    let c = this.context;
    c.beginPath(), points.forEach(([x, y], n) => n ? c.lineTo(x, y) : c.moveTo(x, y)), fill && (c.closePath(), this._set("fillStyle", fill), c.fill()), stroke && this._stroke(stroke, width, dash);
  }
};

// src/draw/svg.js
var ANCHORS = { center: "middle", right: "end" }, SvgPen = class extends Pen {
  /**
   * @param {Palette} palette
   * @param {string} [prefix]
   */
  constructor(palette, prefix = "sv") {
    super(palette), this.parts = [], this.definitions = [], this._names = /* @__PURE__ */ new Map(), this._prefix = prefix;
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   * @param {BoxLook} at
   */
  rect(x, y, w, h, { fill, stroke, width = 1, radius = 0, dash, hatch }) {
    let inset = stroke ? width / 2 : 0, box = attributes({
      x: round2(x + inset),
      y: round2(y + inset),
      width: round2(Math.max(w - 2 * inset, 0)),
      height: round2(Math.max(h - 2 * inset, 0)),
      rx: radius ? round2(Math.min(radius, h / 2)) : void 0
    }), paint = attributes({ fill: fill || "none", ...outline(stroke, width, dash) });
    this.parts.push(`<rect${box}${paint}/>`), hatch && this.parts.push(`<rect${box} fill="url(#${this._hatch(hatch)})"/>`);
  }
  /** @param {string} colour */
  _hatch(colour) {
    if (!this._names.has(colour)) {
      let name = `${this._prefix}-hatch-${this._names.size}`;
      this._names.set(colour, name);
      let path = `<path d="M-6 6L0 0M0 6L6 0M6 6L12 0" stroke="${xml(colour)}"`;
      this.definitions.push(
        `<pattern id="${name}" width="6" height="6" patternUnits="userSpaceOnUse">${path} stroke-width="1.5" fill="none"/></pattern>`
      );
    }
    return this._names.get(colour);
  }
  /**
   * @param {string} string
   * @param {number} x
   * @param {number} y
   * @param {TextLook} look
   */
  text(string, x, y, look) {
    let shown = look.max === void 0 ? string : cutText(string, look.max, fontOf(look));
    if (shown === "") return;
    let how = attributes({
      x: round2(x),
      y: round2(y),
      "dominant-baseline": "central",
      "font-family": familyOf(look),
      "font-size": look.size ?? 11,
      "font-weight": look.weight || void 0,
      "text-anchor": ANCHORS[look.align ?? "left"],
      fill: look.fill ?? this.p.ink,
      "xml:space": "preserve"
    });
    this.parts.push(`<text${how}>${xml(shown)}</text>`);
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   * @param {() => void} draw
   */
  clip(x, y, w, h, draw) {
    let name = `${this._prefix}-clip-${this.definitions.length}`, box = attributes({ x: round2(x), y: round2(y), width: round2(w), height: round2(h) });
    this.definitions.push(`<clipPath id="${name}"><rect${box}/></clipPath>`), this.parts.push(`<g clip-path="url(#${name})">`), draw(), this.parts.push("</g>");
  }
  /**
   * @param {number[][]} points
   * @param {BoxLook} at
   */
  _path(points, { stroke, fill, width = 1, dash }) {
    let d = points.map(([x, y], n) => `${n ? "L" : "M"}${round2(x)} ${round2(y)}`).join(""), shape = { d: fill ? `${d}Z` : d, fill: fill || "none" };
    this.parts.push(`<path${attributes({ ...shape, ...outline(stroke, width, dash) })}/>`);
  }
  /**
   * Draw what follows moved by (x, y).
   * @param {number} x
   * @param {number} y
   * @param {() => void} draw
   */
  shifted(x, y, draw) {
    this.parts.push(`<g transform="translate(${round2(x)} ${round2(y)})">`), draw(), this.parts.push("</g>");
  }
  /**
   * @param {number} width
   * @param {number} height
   * @param {string} title
   */
  svg(width, height, title) {
    let xmlns = "http://www.w3.org/2000/svg", viewBox = `0 0 ${width} ${height}`;
    return [
      `<svg${attributes({ xmlns, width, height, viewBox, role: "img" })}>`,
      `<title>${xml(title)}</title><defs>`,
      ...this.definitions,
      "</defs>",
      ...this.parts,
      "</svg>"
    ].join("");
  }
};
function attributes(values) {
  return Object.entries(values).filter(([, value]) => value !== void 0).map(([name, value]) => ` ${name}="${xml(value)}"`).join("");
}
function outline(stroke, width, dash) {
  return stroke ? { stroke, "stroke-width": width, "stroke-dasharray": dash?.join(" ") } : {};
}
function round2(value) {
  return Math.round(value * 100) / 100;
}
function xml(string) {
  return String(string).replace(/[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu, "\uFFFD").replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

// src/film/compare.js
var Comparison = class {
  /**
   * @param {Film} first
   * @param {Film} second
   */
  constructor(first, second) {
    this.films = [first, second], this.lead = second.steps > first.steps ? 1 : 0, this.clocks = this.films[this.lead].steps, this.byTokens = !1, this.partings = first.json.requests.map((_, request) => this._parting(request));
  }
  /**
   * Index of the first token of a request that the runs do not share; -1: the texts are the same.
   * @param {number} request
   */
  _parting(request) {
    let [a, b] = this.films.map((film) => film.json.requests[request].tokens), at = a.findIndex((token, index) => token !== b[index]);
    return at >= 0 ? at : a.length === b.length ? -1 : a.length;
  }
  /**
   * @param {number} request
   * @param {number} index
   */
  differs(request, index) {
    return this.films[0].token(request, index) !== this.films[1].token(request, index);
  }
  get unequal() {
    return this.partings.filter((at) => at >= 0).length;
  }
  // {request, index, step}: where the texts part for the first time, step being the first run's;
  // null where they never do.
  get first() {
    let found = this.partings.flatMap(
      (index, request) => index < 0 ? [] : [{ request, index, step: this._emitted(request, index) }]
    );
    return found.length ? found.reduce((best, each) => each.step < best.step ? each : best) : null;
  }
  get words() {
    let { first } = this, count = this.partings.length;
    if (!first) return `all ${count} texts are the same`;
    let tokens = this.films.map((film) => {
      let token = film.token(first.request, first.index);
      return token === void 0 ? "its end" : `\u201C${film.text(token)}\u201D`;
    }), place = `request ${first.request}, token ${first.index}`, differ = `${this.unequal} of ${count} texts differ`;
    return `first difference: ${place}: ${tokens.join(" / ")}; ${differ}`;
  }
  /**
   * The step of the first run that emits a token, or the last one that emits any of the request
   * where its text is over by then.
   * @param {number} request
   * @param {number} index
   */
  _emitted(request, index) {
    let film = this.films[0], { rounds } = film.json, last = 0;
    for (let number = 0; number < rounds.length; number++) {
      let row = rounds[number].rows.find((each) => each.request === request && each.gained > 0);
      if (row && (last = number, index < row.length + row.gained))
        break;
    }
    return film.step(last, "accept");
  }
  /**
   * The step that run `which` shows when the clock is at `clock`: the same phase, in the round of
   * the same number, or by tokens in the last round that begins with no more of them than the other
   * run's.
   * @param {number} which
   * @param {number} clock
   */
  stepOf(which, clock) {
    let film = this.films[which];
    if (which === this.lead) return clock;
    let round = this.films[this.lead].round(clock), phase = film.phase(clock);
    return film.phases * (this.byTokens ? this._roundOf(film, round) : Math.min(round, film.json.rounds.length - 1)) + phase;
  }
  /**
   * @param {Film} film
   * @param {number} leading
   */
  _roundOf(film, leading) {
    let goal = this.films[this.lead].committed(leading * film.phases);
    return bisect(film.json.rounds.length, (round) => film.committed(round * film.phases) > goal) - 1;
  }
  /**
   * The first clock at which run `which` shows `step`; a later one where none does.
   * @param {number} which
   * @param {number} step
   */
  clockOf(which, step) {
    let film = this.films[which];
    if (which === this.lead || !this.byTokens) return step;
    let rounds = this.clocks / film.phases, wanted = film.round(step);
    return Math.min(
      bisect(rounds, (round) => this._roundOf(film, round) >= wanted),
      rounds - 1
    ) * film.phases + film.phase(step);
  }
  /**
   * @param {number} which
   * @param {number} clock
   */
  over(which, clock) {
    return !this.byTokens && clock >= this.films[which].steps;
  }
};
function bisect(count, holds) {
  let low = 0, high = count;
  for (; low < high; ) {
    let middle = low + high >> 1;
    holds(middle) ? high = middle : low = middle + 1;
  }
  return low;
}

// src/draw/words.js
var PAD = 12, LONGEST = 150;
function counted(number, noun, nouns = `${noun}s`) {
  return `${number} ${number === 1 ? noun : nouns}`;
}
function quoted(text, most = 18) {
  let letters = [...text];
  return `\u2018\u2068${letters.length > most ? `${letters.slice(0, most - 1).join("")}\u2026` : text}\u2069\u2019`;
}
function rangeWords(ranges, most = 3) {
  return ranges.slice(0, most).map(([start2, stop]) => stop - start2 > 1 ? `${start2}\u2013${stop - 1}` : `${start2}`).join(", ") + (ranges.length > most ? ", \u2026" : "");
}
function milliseconds(value) {
  return value > 0 && value < 5e-3 ? "<0.01 ms" : `${value.toFixed(value >= 99.95 || value === 0 ? 0 : value >= 0.095 ? 1 : 2)} ms`;
}
function percent(share) {
  return share > 0 && share < 5e-4 ? "<0.1 %" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}
function bytesOf(size) {
  let [unit, name, digits] = size >= 1e9 ? [1e9, "GB", 2] : size >= 1e5 ? [1e6, "MB", 1] : [1e3, "kB", 1];
  return `${(size / unit).toFixed(digits)} ${name}`;
}
function chance(p) {
  return p == null ? "\u2013" : p >= 0.01 ? p.toFixed(2) : p >= 1e-3 ? p.toFixed(3) : "<.001";
}
function wrapWords(string, max, look = {}) {
  let font = fontOf(look), lines2 = [];
  for (let word of string.split(" ")) {
    let longer = lines2.length ? `${lines2[lines2.length - 1]} ${word}` : "";
    longer && measureText(longer, font) <= max ? lines2[lines2.length - 1] = longer : lines2.push(word);
  }
  return lines2;
}
function drawChip(pen, text, x, y, max, { fill, stroke, sign = "", dash, size = 11.5, height = 20, width }) {
  let look = { size, mono: !0 }, lead = sign ? 14 : 0, inner = Math.min(pen.measure(text, look), max - 14 - lead), w = width ?? inner + 14 + lead;
  return pen.rect(x, y - height / 2, w, height, { fill, stroke, radius: 5, dash }), sign && pen.text(sign, x + 7, y, { size: 10, weight: 700, fill: pen.p.ink }), pen.text(text, x + 7 + lead, y + 0.5, { ...look, fill: pen.p.ink, max: w - 13 - lead }), w;
}

// src/film/positions.js
function driftsAway({ position, index }) {
  return position >= 0 && position !== index;
}

// src/film/sight.js
function maskCells(film, step, row) {
  let entry = film.rows(step)[row];
  if (!entry) return null;
  let phase = film.phase(step), kind = Math.min(phase, 2), at = step - phase + kind, model = kind === 1 ? 1 : 0, stage = film.stage(at), source = kind ? { row, moves: [] } : prefillSource(stage, row), feeds = stage.feeds.filter((run) => run[0] === model), fed = feeds.filter((run) => run[2] === source.row);
  if (!fed.length || film.json.gaps?.masks[model]) return null;
  let lane = kind ? film.lane(at, model ? "draft" : "target", row) : writtenLane(film, fed, entry), ends = feeds.map((run) => run[8] + run[4] - 1), slots = Math.max(kind === 2 ? film.scene(step).slots : 0, ...ends), faults = stage.faults.filter((fault) => fault[1] === source.row), queries = fed.flatMap((run) => queriesOf(film, entry, run, lane, slots, faults)), drifting = queries.filter((query) => film.checked && driftsAway(query));
  return {
    kind,
    step: at,
    row,
    slots,
    queries,
    length: entry.length,
    sights: new Set(queries.flatMap((query) => query.segments.map((each) => each[2]))),
    leaks: joinedRanges(faults.flatMap((fault) => fault[4])),
    holes: joinedRanges(faults.flatMap((fault) => fault[5])),
    drifts: drifting.length,
    lost: Math.max(0, ...faults.map((fault) => fault[6])),
    now: (slot) => movesSince(film, step, row, source.moves).reduce(movedSlot, slot),
    holds: (slot) => {
      let run = lane.find((each) => slot >= each[0] && slot < each[1]);
      return run ? film.cellOf(run, slot) : null;
    }
  };
}
function writtenLane(film, fed, entry) {
  let held = film.json.kinds.indexOf("held");
  return fed.map(([, , , slot, count, index, position]) => [
    slot,
    slot + count,
    held,
    index,
    position,
    entry.request,
    0
  ]).sort((one, other) => one[0] - other[0]);
}
function prefillSource(stage, row) {
  let feeds = stage.feeds.filter((run) => run[0] === 0), copies = stage.moves.filter((move) => move[0] === 0), steps = new Set([...copies, ...feeds].map((each) => each[1])), moves = [], source = row;
  for (let step of [...steps].sort((one, other) => other - one)) {
    let here = source;
    if (feeds.some((run) => run[1] === step && run[2] === here)) break;
    let move = copies.find((each) => each[1] === step && each[4] === here);
    move && (moves.unshift(move), source = move[2]);
  }
  return { row: source, moves };
}
function movesSince(film, step, row, prefilled) {
  return film.phase(step) !== 4 ? prefilled : film.stage(step).moves.filter((move) => !move[0] && move[2] === row && move[4] === row);
}
function movedSlot(slot, [, , , from, , to, length]) {
  return slot >= from && slot < from + length ? slot + to - from : slot;
}
function queriesOf(film, entry, run, lane, slots, faults) {
  let [, forward, , slot, count, index, position, , until, , first = 0] = run, pieces = piecesOf(film, run, lane, slots);
  return Array.from({ length: count }, (_, n) => {
    let at = index + n, node = first && first + n, ahead = node ? node - 1 : at - entry.length, fault = faults.find((each) => {
      let offset = each[7] ? node - each[7] : node ? -1 : at - each[2];
      return each[0] === forward && offset >= 0 && offset < each[3];
    }), name = queryName(entry, node, at), token = ahead >= 0 ? entry.drafts[ahead] ?? -1 : film.token(entry.request, at) ?? -1, segments = segmentsOf(film, pieces, entry.length, until + n, fault), text = isMask(film, run, ahead) ? "mask" : film.text(token), place = {
      index: at,
      position: position < 0 ? -1 : position + n,
      slot: slot + n,
      until: until + n
    };
    return { name, node, forward, token, text, ...place, segments };
  });
}
function isMask({ json }, [model], ahead) {
  return model === 1 && ahead >= 0 && json.meta.draft_kv === "masks";
}
function queryName({ length, drafted }, node, index) {
  if (node > drafted) return "other";
  let ahead = node ? node - 1 : index - length;
  return ahead >= 0 ? `d${ahead + 1}` : ahead === -1 ? "pending" : `index ${index}`;
}
function piecesOf(film, [, , , , , , , see, , holes], lane, slots) {
  let laneEdges = [];
  for (let [start2, stop] of lane) laneEdges.push(start2, stop);
  let edges = sortedEdges([0, slots, see, ...holes.flat(), ...laneEdges], slots);
  return edges.slice(0, -1).map((start2, n) => {
    let held = lane.find((each) => start2 >= each[0] && start2 < each[1]), kind = held ? film.json.kinds[held[2]] : "empty", counts = kind === "held" || kind === "drafted";
    return {
      start: start2,
      stop: edges[n + 1],
      index: held && counts ? held[3] + start2 - held[0] : -1,
      stale: held !== void 0 && !counts && held[3] >= 0,
      open: start2 >= see && !covers(holes, start2)
    };
  });
}
function segmentsOf(film, pieces, length, until, fault) {
  let leaks = fault?.[4] ?? [], holes = fault?.[5] ?? [], cuts2 = [until, ...leaks.flat(), ...holes.flat()], segments = [];
  for (let piece of pieces) {
    let firstDraft = piece.index < 0 ? until : piece.start + length - piece.index, inside = [...cuts2, firstDraft].filter((cut) => cut > piece.start && cut < piece.stop), edges = sortedEdges([piece.start, ...inside, piece.stop], piece.stop);
    for (let n = 0; n + 1 < edges.length; n++) {
      let start2 = edges[n], sight = sightOf(film, piece, start2, until, firstDraft, leaks, holes), last = segments.at(-1);
      last?.[2] === sight ? last[1] = edges[n + 1] : segments.push([start2, edges[n + 1], sight]);
    }
  }
  return segments;
}
function sightOf(film, piece, slot, until, firstDraft, leaks, holes) {
  if (covers(leaks, slot)) return "leak";
  if (covers(holes, slot)) return "hole";
  let reached = slot < until;
  return piece.open && reached ? piece.index >= 0 && slot >= firstDraft ? "own" : "seen" : film.checked && piece.stale && reached ? "hidden" : "blank";
}
function sortedEdges(edges, most) {
  return [...new Set(edges.filter((edge) => edge <= most))].sort((one, other) => one - other);
}
function covers(ranges, slot) {
  return ranges.some(([start2, stop]) => slot >= start2 && slot < stop);
}
function joinedRanges(ranges) {
  let joined = [];
  for (let [start2, stop] of [...ranges].sort((one, other) => one[0] - other[0])) {
    let last = joined.at(-1);
    last && start2 <= last[1] ? last[1] = Math.max(last[1], stop) : joined.push([start2, stop]);
  }
  return joined;
}

// src/film/head.js
function drafterName(film) {
  return film.json.head ?? "draft";
}
function keepsNothing({ json }) {
  return json.head !== void 0 && json.meta.kv_bytes_per_slot.draft === 0;
}
function sourceAt(film, step, row, slot) {
  if (film.json.head === void 0) return null;
  let held = film.cell(step, "draft", row, slot);
  if (!held || held.kind !== "held" && held.kind !== "drafted") return null;
  let guess = guessesOf(film, step, row).find(([start2, stop]) => slot >= start2 && slot < stop);
  return guess ? guess[2] : held.index > 0 ? "target" : "none";
}
function guessesOf(film, step, row) {
  return (film.stage(step).guessed?.[row] ?? []).map(([slot, stop, source]) => [slot, stop, film.json.sources?.[source] ?? "none"]);
}
function hasSource({ json }, source) {
  let number = json.sources?.indexOf(source) ?? -1;
  return number >= 0 && json.rounds.some(
    ({ stages }) => stages.some(({ guessed }) => guessed?.some((row) => row.some((run) => run[2] === number)))
  );
}
function sourceWords(film, step, row, slot) {
  let source = sourceAt(film, step, row, slot);
  if (!source) return "";
  let { index } = (
    /** @type {Cell} */
    film.cell(step, "draft", row, slot)
  );
  return {
    none: `token ${index}, read without a feature, since no token is before it`,
    target: `token ${index}, read with the target's feature of token ${index - 1}`,
    own: `token ${index}, read with the head's own feature of token ${index - 1}`,
    mask: `mask entry for token ${index}`
  }[source];
}

// src/panels/invariants.js
var LISTED = 50, DRAWN = 8, APART = 2, InvariantPanel = class {
  static id = "invariants";
  /** @param {View} view */
  constructor(view) {
    this.view = view, this._known = new Kept();
  }
  key() {
    return `${this.view.step} ${this.view.row}`;
  }
  empty() {
    return !this.view.film.steps;
  }
  // Violations of this round up to this phase, those of the chosen row first.
  _found() {
    return this._known.get(`${this.view.step} ${this.view.row}`, () => this._search());
  }
  _search() {
    let { film, step, row } = this.view, first = step - film.phase(step), found = [];
    for (let at = first; at <= step; at++) found.push(...film.violationsAt(at));
    let rank = (each) => film.rowOf(step, each.request) === row ? 0 : 1;
    return found.sort((a, b) => rank(a) - rank(b));
  }
  title() {
    let { film, step } = this.view, all = film.violations.length, found = this._found().length;
    if (!film.checked) return "Invariants \xB7 not checked here";
    let checked = this.unchecked() ? "all that were checked" : "all", rounds = counted(film.json.rounds.length, "round");
    return all ? `Invariants \xB7 ${found ? counted(found, "violation") : "none violated"} in round ${film.round(step)} so far, ${all} in the run` : `Invariants \xB7 ${checked} hold in all ${rounds}`;
  }
  // What was not checked, because a log lacks what it needs.
  unchecked() {
    let { checked, json } = this.view.film, unchecked = checked ? json.gaps?.unchecked ?? [] : [];
    return unchecked.length ? `Not checked: ${unchecked.join("; ")}.` : "";
  }
  /** @param {StepViolation} at */
  _row({ step, request, row }) {
    let found = this.view.film.rowOf(step, request);
    return found < 0 ? row : found;
  }
  /** @param {StepViolation} each */
  _text(each) {
    let more = each.count > 1 ? ` (${this._size([each])})` : "", where = `row ${this._row(each)} (request ${each.request})`;
    return `${each.rule}, ${where}, ${this._place(each)}: ${each.expected}; ${each.found}${more}`;
  }
  /** @param {StepViolation} at */
  _place({ phase, model }) {
    let words = `${this.view.film.json.phases[phase]} phase`, { head } = this.view.film.json;
    return model < 0 ? words : `${words}, ${["target model", head ?? "draft model"][model]}`;
  }
  /** @param {StepViolation[]} some */
  _size(some) {
    return counted(
      some.reduce((sum, each) => sum + each.count, 0),
      some[0].slot === null ? "token" : "slot"
    );
  }
  /**
   * Violations of one rule in one phase and model: an entry for all of them where many rows have
   * one, with the first as its example.
   * @param {StepViolation[]} some
   */
  _together(some) {
    if (some.length <= APART) return some.map((each) => this._item(each));
    let rows = joinedRanges(some.map((each) => [this._row(each), this._row(each) + 1])), [first] = some, where = `rows ${rangeWords(rows)}`, example = `in row ${this._row(first)} ${first.expected}; ${first.found}`;
    return [
      {
        ...this._item(first),
        text: `${first.rule}, ${where}, ${this._place(first)}, ${this._size(some)}: ${example}`
      }
    ];
  }
  /** @param {StepViolation[]} found */
  _grouped(found) {
    let groups = /* @__PURE__ */ new Map();
    for (let each of found) {
      let key = `${each.step} ${each.rule} ${each.model}`;
      groups.set(key, [...groups.get(key) ?? [], each]);
    }
    return [...groups.values()].flatMap((some) => this._together(some));
  }
  /** @param {StepViolation} each */
  _item(each) {
    return { text: this._text(each), row: this._row(each), slot: each.slot, step: each.step };
  }
  // What leads somewhere: this round's violations, or else where the next or the last ones are.
  /** @returns {Item[]} */
  items() {
    let { film, step } = this.view, found = this._found(), listed = this._grouped(found);
    if (listed.length > LISTED) return [...listed.slice(0, LISTED), this._rest(listed)];
    if (found.length || !film.violations.length) return listed;
    let next = film.violations.find((each) => each.step > step), near = next ?? film.violations.findLast((each) => each.step < step);
    if (!near) return [];
    let when = film.round(near.step) === film.round(step) ? "in this round" : `in round ${film.round(near.step)}`;
    return [
      { ...this._item(near), text: `${next ? "next" : "last"} one ${when}: ${this._text(near)}` }
    ];
  }
  /** @param {Item[]} listed */
  _rest(listed) {
    return {
      ...listed[LISTED],
      text: `and ${listed.length - LISTED} more, the first of them: ${listed[LISTED].text}`
    };
  }
  describe() {
    let [item] = this.items();
    return item ? `${this.title()}. ${this._found().length ? "First" : "Nearest"}: ${item.text}.` : `${this.title()}. ${this.unchecked()}`.trim();
  }
  table() {
    let { film } = this.view, head = [
      "row",
      "request",
      "phase",
      "model",
      "rule",
      "slot",
      "how many",
      "expected",
      "found"
    ], rows = this._found().slice(0, 400).map((each) => [
      this._row(each),
      each.request,
      film.json.phases[each.phase],
      ["\u2013", "target", drafterName(film)][each.model + 1],
      each.rule,
      each.slot ?? "\u2013",
      each.count,
      each.expected,
      each.found
    ]);
    return { caption: this.unchecked(), head, rows };
  }
  /**
   * {sign, lines} of what a picture says.
   * @param {number} width
   */
  _paragraphs(width) {
    let items = this.items(), sign = this._found().length ? "\u25B2" : "\u2192", all = items.length, entries = items.slice(0, DRAWN).map(({ text }) => ({ sign, text }));
    return items.length || entries.push({
      sign: "\u2713",
      text: `Nothing is out of step in ${counted(this.view.film.json.rounds.length, "round")}.`
    }), all > DRAWN && entries.push({ sign: "", text: `and ${all - DRAWN} more of them` }), this.unchecked() && entries.push({ sign: "", text: this.unchecked() }), entries.map(({ text, ...rest }) => ({
      ...rest,
      lines: wrapWords(text, width - 2 * PAD - 18, { size: 12 })
    }));
  }
  /** @param {number} width */
  height(width) {
    return this._paragraphs(width).reduce((sum, { lines: lines2 }) => sum + lines2.length * 17 + 7, 4);
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    let { p } = pen, colours = { "\u25B2": p.red, "\u2713": p.green, "\u2192": p.muted }, y = 10;
    for (let { sign, lines: lines2 } of this._paragraphs(width)) {
      let size = sign === "\u25B2" ? 10 : 12;
      sign && pen.text(sign, PAD, y, { size, weight: 700, fill: colours[sign] }), lines2.forEach((line, n) => pen.text(line, PAD + 18, y + n * 17, { size: 12, fill: p.ink })), y += lines2.length * 17 + 7;
    }
  }
  hit() {
    return null;
  }
};

// src/panels/coordinates.js
var Coordinates = class {
  /** @param {StageLayout} at */
  constructor(at) {
    this.at = at, this.turn = at.view.turn ?? 0, this.heads = this.turn ? at.rows.map((_, row) => this._head(row)) : [];
  }
  /**
   * px of a place on a line whose full cells begin at `first`.
   * @param {number} place
   * @param {number} first
   */
  _px(place, first) {
    let { fold, cell, count } = this.at, before = Math.min(place, first), full = Math.min(Math.max(place - first, 0), count), behind = Math.max(place - first - count, 0);
    return GUTTER + fold * (before + behind) + cell * full;
  }
  /**
   * As many of the row's places stand at full width before its pending token as by slots.
   * @param {number} row
   */
  _head(row) {
    let { at } = this, begin = at.begin(at.rows[row]);
    return Math.max(this.positionOf(row, begin) - (begin - at.firsts[row]), 0);
  }
  /**
   * The position of what lies in a slot; where nothing does, that of what would follow on.
   * @param {number} row
   * @param {number} slot
   */
  positionOf(row, slot) {
    let { film, step, rows } = this.at, begin = this.at.begin(rows[row]), found = rows[row].length - 1 + slot - begin;
    for (let [first, stop, , index, position] of film.lane(step, "tokens", row)) {
      if (index < 0 || slot < first) continue;
      let at = position < 0 ? index : position;
      if (slot < stop) return at + slot - first;
      found = at + slot - first;
    }
    return found;
  }
  /**
   * @param {number} row
   * @param {number} slot
   * @param {number} [position]
   */
  x(row, slot, position) {
    let bySlot = this._px(slot, this.at.firsts[row]);
    if (!this.turn) return bySlot;
    let place = position !== void 0 && position >= 0 ? position : this.positionOf(row, slot);
    return bySlot + (this._px(place, this.heads[row]) - bySlot) * this.turn;
  }
  /**
   * Whether a run is seen: by positions, what is no token of the row has no place.
   * @param {LaneRun} run
   */
  shows([, , kind, index]) {
    return this.turn < 0.5 ? !0 : index >= 0 && this.at.film.json.kinds[kind] !== "stale";
  }
  /**
   * The position of a run's first token, or its index where no position is known.
   * @param {LaneRun} run
   */
  firstPosition([, , , index, position]) {
    return position < 0 ? index : position;
  }
  /**
   * The slots from `first` to before `stop` of a run of slots that stand at full width in either
   * coordinate.
   * @param {number} row
   * @param {number} first
   * @param {number} stop
   * @param {number} position of the first one, or -1
   * @returns {[number, number]}
   */
  full(row, first, stop, position) {
    let { at } = this, from = at.firsts[row], [low, high] = [from, from + at.count];
    if (this.turn && position >= 0) {
      let shift = first - position, ends = [this.heads[row] + shift, this.heads[row] + at.count + shift];
      this.turn === 1 ? [low, high] = ends : [low, high] = [Math.min(low, ends[0]), Math.max(high, ends[1])];
    }
    return [Math.max(first, low), Math.min(stop, high)];
  }
  /**
   * @param {number} row
   * @param {number} x
   */
  slotAt(row, x) {
    let { at } = this;
    if (this.turn) return this._slotUnder(row, x);
    let { fold, cell, count } = at, first = at.firsts[row], edge = GUTTER + fold * first;
    return x < edge ? Math.floor((x - GUTTER) / fold) : x < edge + cell * count ? first + Math.floor((x - edge) / cell) : first + count + (fold ? Math.floor((x - edge - cell * count) / fold) : 0);
  }
  /**
   * @param {number} row
   * @param {number} x
   */
  _slotUnder(row, x) {
    let { film, step } = this.at, found = -1;
    for (let [first, stop, kind, index] of film.lane(step, "tokens", row))
      if (!(index < 0 || film.json.kinds[kind] === "stale"))
        for (let slot = first; slot < stop; slot++)
          x >= this.x(row, slot) && x < this.x(row, slot + 1) && (found = slot);
    return found;
  }
};

// src/panels/strip.js
function stripIn(capacity, room) {
  if (capacity === void 0) return { cell: 0, across: 1, height: 0 };
  let cell = Math.min(Math.max(room / Math.max(capacity, 1), 15), 30), across = Math.max(Math.floor(room / cell + 1e-6), 1), lines2 = Math.max(Math.ceil(capacity / across), 1);
  return { cell, across, height: 8 + lines2 * 20 };
}

// src/panels/layout.js
var ZOOMS = [1, 2, 4, 8, 13, 20, 28, 36, 46, 64, 90, 120], TEXT_FROM = 26, SIGNS_FROM = 10, LARGE_FROM = 60, ALL_FROM = 46, WIDEST = 110, USUAL = 54, FOLDED = 44, FOLDED_SHARE = 0.2, STACKED_BELOW = 44, DRAFT_BAR = 4, ARROWS = 13, DEEPER = 9, OPEN = 56, LOWEST = 46, GUTTER = 100, RIGHT = 12, AXIS = 18, READING = 28, StageLayout = class {
  /**
   * @param {View} view
   * @param {number} width
   */
  constructor(view, width) {
    let { film, step } = view;
    this.view = view, this.film = film, this.step = step, this.width = width, this.stage = film.stage(step), this.rows = film.rows(step), this.lanes = [], this.arrows = hasTrees(film) ? ARROWS : 0;
    let heads = [film, view.other].some((each) => each?.json.head);
    this.draftBar = heads ? 6 : DRAFT_BAR, this.bottom = 0, this.last = this._last(), this.span = Math.max(...this.rows.map((row) => Math.max(row.drafted, row.gained)), 0), this.cell = this._cell(), this.count = this._count();
    let room = width - GUTTER - RIGHT, folded = this.last - this.count;
    this.fold = folded > 0 ? Math.max((room - this.count * this.cell) / folded, 0) : 0, this.firsts = this._firsts(), this.shared = !view.turn && this.firsts.every((first) => first === this.firsts[0]), this.places = new Coordinates(this), this.top = AXIS, this._rowTops(), this.strip = stripIn(film.capacity, room), this.readingTop = this.bottom + this.strip.height + 2, this.height = this.bottom + this.strip.height + READING;
  }
  get texts() {
    return this.cell >= TEXT_FROM;
  }
  get signs() {
    return this.cell >= SIGNS_FROM;
  }
  get stacked() {
    return (this.film.drifts || this.view.other?.drifts) && this.cell < STACKED_BELOW + (this.last > 99 ? 12 : 0);
  }
  get large() {
    return this.cell >= LARGE_FROM;
  }
  // Wide enough for a token's text: where all slots have that room, else where the last ones of
  // each row have it, beside the folded ones.
  _cell() {
    if (this.view.zoom != null) return ZOOMS[this.view.zoom];
    let room = this.width - GUTTER - RIGHT, fits = room / this.last;
    if (fits >= ALL_FROM) return Math.min(fits, WIDEST);
    let needed = (room - FOLDED) / (this.span + 3);
    return Math.max(Math.min(needed, USUAL), SIGNS_FROM, fits);
  }
  // How many slots stand at full width.
  _count() {
    let room = this.width - GUTTER - RIGHT;
    if (this.last * this.cell <= room + 0.5) return this.last;
    let least = Math.min(this.span + 3, Math.floor((room - FOLDED) / this.cell)), most = Math.floor(room * (1 - FOLDED_SHARE) / this.cell);
    return Math.max(Math.min(Math.max(least, most), this.last - 1), 1);
  }
  // Slot behind the last one that any row holds or awaits in this round.
  _last() {
    let ends = this.rows.map(
      (row) => 1 + Math.max(row.pending + Math.max(row.drafted, row.gained), row.pending_after)
    );
    return Math.max(this.stage.width, ...ends);
  }
  /**
   * Slot of each row's pending token when the round began, where it lies now.
   * @param {RowEntry} row
   */
  begin(row) {
    let moved = this.film.phase(this.step) === this.film.phases - 1 ? row.start_after - row.start : 0;
    return row.pending + moved;
  }
  _firsts() {
    let slid = Math.round(this.view.pan ?? 0), most = this.last - this.count;
    return this.rows.map((row) => {
      let end = Math.max(this.begin(row) + this.span + 2, row.pending_after + 1);
      return Math.min(Math.max(end - this.count - slid, 0), Math.max(most, 0));
    });
  }
  // Room for as many rows as the run ever has, so that the panel keeps its height.
  _rowTops() {
    let most = this.film.mostRows, open = this.openHeight, compact = most <= 8 ? open : most <= 24 ? 25 : 13, y = this.top;
    for (let row = 0; row < this.rows.length; row++) {
      let wide = most <= 8 || row === this.view.row, height = wide ? open : compact;
      this.lanes.push(this._lane(y, height, wide)), y += height;
    }
    this.bottom = this.top + (most - 1) * compact + open;
  }
  /** px of an open row; more where the place has room for it */
  get openHeight() {
    if (!this.signs) return 36;
    let more = this.arrows + this.draftBar - DRAFT_BAR + (this.stacked ? DEEPER : 0);
    return this.texts ? Math.max(this.view.tall ?? OPEN, LOWEST) + more : 48 + more;
  }
  /**
   * tops and heights of a row's lanes; positions: null where they are folded away
   * @param {number} y
   * @param {number} height
   * @param {boolean} open
   * @returns {RowLanes}
   */
  _lane(y, height, open) {
    if (!open) {
      let tokens2 = { y: y + 1, h: height > 14 ? 14 : 7 }, bar = height > 14 ? 3 : 2, target2 = { y: tokens2.y + tokens2.h + 1, h: bar }, hidden = height <= 14 || keepsNothing(this.film), draft2 = { y: target2.y + bar + (height > 14 ? 1 : 0), h: hidden ? 0 : bar };
      return { y, height, open, tokens: tokens2, target: target2, draft: draft2, ...{ positions: null, arrows: null, notes: null } };
    }
    let spare = height - this.arrows - LOWEST, tokens = {
      y: y + 1,
      h: this.texts ? 15 + Math.min(Math.max(spare, 0) * 0.6, 9) : this.signs ? 16 : 10
    }, hung = 10 + Math.min(Math.max(spare, 0) * 0.2, 3), notes = this.signs ? { y: tokens.y + tokens.h + 1, h: hung } : null, above = notes ?? tokens, deep = this.stacked ? DEEPER : 0, positions = this.texts ? { y: above.y + above.h, h: 9 + deep } : null, over = positions ?? above, target = { y: over.y + over.h, h: spare > 4 ? 5 : 4 }, draft = { y: target.y + target.h + 1, h: keepsNothing(this.film) ? 0 : this.draftBar }, below = draft.y + this.draftBar + 2, arrows = this.signs && this.arrows ? { y: below, h: this.arrows } : null;
    return {
      y,
      height,
      open,
      tokens,
      positions,
      target,
      draft,
      arrows,
      notes
    };
  }
  /**
   * The left edge of a slot. position: that of the token in it, where it is known.
   * @param {number} row
   * @param {number} slot
   * @param {number} [position]
   */
  x(row, slot, position) {
    return this.places.x(row, slot, position);
  }
  /**
   * @param {number} row
   * @param {number} x
   */
  slotAt(row, x) {
    return this.places.slotAt(row, x);
  }
  /** @param {number} y */
  rowAt(y) {
    return this.lanes.findIndex((lane) => y >= lane.y && y < lane.y + lane.height);
  }
  get right() {
    return this.width - RIGHT;
  }
};

// src/panels/guesses.js
var DASHES = { own: [5, 3], mask: [1.5, 3] };
function drawGuesses(pen, at, number, slide) {
  let { y, h } = at.lanes[number].draft;
  for (let [slot, stop, source] of guessesOf(at.film, at.step, number)) {
    let x = at.x(number, slot) + slide, w = at.x(number, stop) + slide - x;
    x + w < GUTTER || x > at.right || (pen.rect(x, y - 0.5, w, h + 1, { fill: pen.p.panel }), drawGuess(pen, source, x, y + h / 2, w, h));
  }
}
function drawGuess(pen, source, x, y, w, h) {
  pen.line(x + 1.5, y, x + w - 1, y, { stroke: pen.p.draft, width: h, dash: DASHES[source] });
}

// src/film/selection.js
function leftOut(entry) {
  return entry.gained ? entry.drafted - entry.verified : 0;
}
function spending(film, step) {
  let { capacity, rows } = film.scene(step);
  if (capacity === void 0) return null;
  let known = film.phase(step) > 0, drafts = rows.flatMap(
    ({ verified }, row) => Array.from({ length: known ? verified : 0 }, (_, draft) => ({ row, draft }))
  );
  return { capacity, known, drafts };
}
function leftOutWords(film, step, row, j) {
  let score = film.rows(step)[row].scores?.[j], scored = score == null ? "" : ` (score\xA0${signed(score)})`;
  return `not verified: ${reason(film, step, row)}${scored}`;
}
function reason(film, step, row) {
  let spent = spending(film, step);
  return spent === null ? "the drafter left it out" : spent.drafts.length < spent.capacity ? "the selector stopped before it" : spent.drafts.some((each) => each.row !== row) ? "the selector spent the capacity on other rows" : "the capacity is spent on the drafts before it";
}
function signed(score) {
  let digits = Math.abs(score) >= 100 ? 0 : 2;
  return `${score < 0 ? "\u2212" : ""}${Math.abs(score).toFixed(digits)}`;
}
function shareWords({ verified, drafted }, done) {
  return `${verified} of ${counted(drafted, "draft")} ${done ? "verified" : "to be verified"}`;
}

// src/panels/cut.js
var HOLLOW = [1.5, 3];
function drawCut(pen, x, y, h, lip = 4) {
  let look = { stroke: pen.p.ink, width: 2 };
  pen.line(x, y, x, y + h, look);
  for (let end of [y + 1, y + h - 1]) pen.line(x - lip, end, x, end, look);
}
function drawCuts(pen, at) {
  let phase = at.film.phase(at.step);
  phase !== 1 && phase !== 2 || at.rows.forEach((row, number) => {
    if (!leftOut(row)) return;
    let { tokens, notes } = at.lanes[number], x = at.x(number, at.begin(row) + 1 + row.verified);
    if (x < GUTTER || x > at.right || (drawCut(pen, x, tokens.y - 2, tokens.h + 4, Math.min(4, at.cell / 3)), !notes || !at.texts)) return;
    let left = Math.max(at.x(number, at.begin(row) + 1) + 2, GUTTER), look = { size: 10, fill: pen.p.muted };
    pen.text(shareWords(row, phase === 2), left, notes.y + notes.h / 2, look);
  });
}

// src/panels/lanelooks.js
var SIGNS = {
  padding: "\xB7",
  drafted: "?",
  pending: "\u25CB",
  accepted_now: "\u2713",
  bonus_now: "\u25CF",
  rejected_now: "\u2717",
  discarded_now: "\u21BA",
  unreached_now: "\u2013",
  wrong_now: "\u25B2",
  unverified: "\u2298",
  a: "\u2713",
  b: "\u25CF"
};
function liesUnder(index, request, own) {
  return index >= 0 && request === own;
}
var HUNG = /* @__PURE__ */ new Set(["rejected_now", "unreached_now", "discarded_now"]), PALE = /* @__PURE__ */ new Set(["stale", "unreached_now", "unverified"]), COMMITTED = /* @__PURE__ */ new Set(["held", "pending", "accepted_now", "bonus_now", "wrong_now"]);
function cellLooks(p) {
  return {
    p: { fill: p.prompt },
    a: { fill: p.held },
    b: { fill: p.held },
    held: { fill: p.held, strip: p.held },
    pending: { fill: p.page, stroke: p.blue, width: 2, strip: p.blue },
    drafted: { fill: p.blueSoft, stroke: p.blue, dash: [3, 2], strip: p.blue },
    accepted_now: { fill: p.greenSoft, stroke: p.green, width: 1.5, strip: p.green },
    bonus_now: { fill: p.amberSoft, stroke: p.amber, width: 2, strip: p.amber },
    wrong_now: { fill: p.redSoft, stroke: p.red, width: 2, strip: p.red },
    unreached_now: { fill: p.greySoft, stroke: p.grey, dash: [3, 2], strip: p.grey },
    rejected_now: { fill: p.orangeSoft, stroke: p.orange, dash: [3, 2], strip: p.orange },
    discarded_now: {
      fill: p.amberSoft,
      stroke: p.amber,
      dash: [2, 2],
      strip: p.amber,
      hatch: p.stale
    },
    unverified: { stroke: p.grey, dash: HOLLOW, strip: p.faint },
    stale: { fill: p.page, stroke: p.faint, hatch: p.faint, strip: p.stale }
  };
}
function signFills(p) {
  return {
    accepted_now: p.green,
    rejected_now: p.orange,
    bonus_now: p.amber,
    wrong_now: p.red,
    pending: p.blue,
    drafted: p.blue
  };
}
function barLooks(p, colour, h) {
  return {
    held: { fill: colour, radius: h / 2 },
    drafted: { fill: p.blueSoft, stroke: colour },
    stale: { fill: p.orangeSoft, hatch: p.orange },
    padding: { fill: p.greySoft }
  };
}

// src/panels/seen.js
var ALWAYS = ["target", "draft", "gap", "differs"], ACCEPT = 3, lanes = /* @__PURE__ */ new WeakMap();
function heldIn(film, number) {
  let known = lanes.get(film) ?? /* @__PURE__ */ new Map();
  return lanes.set(film, known), known.has(number) || known.set(number, kindsOf(film, film.json.lanes[number] ?? [])), known.get(number) ?? [];
}
function kindsOf(film, runs) {
  let found = /* @__PURE__ */ new Set();
  for (let [first, stop, kind, index, position, request] of runs) {
    let name = film.json.kinds[kind];
    name !== "held" ? found.add(name) : index < film.json.requests[request].prompt && found.add("p");
    let { prompt } = film.json.requests[request] ?? { prompt: 1 / 0 };
    name === "held" && index + stop - first > prompt && found.add("a"), film.checked && position >= 0 && position !== index && name !== "stale" && found.add("drift"), name === "pending" && index >= 0 && found.add("under");
  }
  return [...found];
}
function seenAt(film, step) {
  let stage = film.stage(step), found = new Set(ALWAYS);
  for (let number of stage.tokens) for (let kind of heldIn(film, number)) found.add(kind);
  let bars = [...stage.target, ...stage.draft].flatMap((number) => heldIn(film, number));
  return (bars.includes("stale") || bars.includes("under")) && found.add("staleKV"), stage.feeds.length && found.add("written"), stage.violations.length && found.add("violation"), rowsSeen(film, step, found), found;
}
function rowsSeen(film, step, found) {
  let { moves } = film.stage(step), phase = film.phase(step);
  moves.length && phase !== ACCEPT && found.add("moved"), film.wrongEnds(step).size && found.add("wrong_now"), film.rows(step).forEach((row, number) => {
    phase === ACCEPT && film.rejectedDraft(row) !== null && found.add("rejected_now"), phase === ACCEPT && moves.length && [...compacted(film, step, number)].length && found.add("compacted");
    for (let [, , source] of guessesOf(film, step, number)) found.add(source);
  });
}

// src/panels/legend.js
var ACCEPT2 = 3, Legend = class {
  /** @param {View} view */
  constructor(view) {
    this.view = view, this.entries = this._entries(), this._heights = new Kept(20), this.states = null;
  }
  // [what is drawn, words]; of both runs where there are two, so that their panels stand at one
  // height
  /** @returns {[string, string][]} */
  _entries() {
    let { film, other } = this.view, films = other ? [film, other] : [film], any = (holds) => films.some(holds), held = new Set(
      films.flatMap(
        ({ json }) => json.lanes.flatMap((lane) => lane.map((run) => json.kinds[run[2]]))
      )
    ), moves = (where) => any(
      ({ json }) => json.rounds.some(
        (round) => round.stages.some(({ moves: moves2 }, phase) => moves2.length > 0 && where(phase, moves2))
      )
    ), keeping = films.filter(
      ({ json }) => json.gaps?.draft || json.meta.kv_bytes_per_slot.draft > 0
    ), drafters = new Set(keeping.map(drafterName)), broken = any((each) => each.violations.length > 0), wrong = any(({ violations }) => violations.some((each) => each.rule === "bonus")), ownToken = films.every((each) => each.knowsChoices) ? "\u25CF the target's own token" : "\u25CF the last token of the round", own = (...kinds) => kinds.filter(([kind]) => held.has(kind)), when = (show, kind, words) => show ? [[kind, words]] : [];
    return [
      ["p", "prompt"],
      ["a", "committed"],
      ["pending", "\u25CB pending: no K/V yet"],
      ...own(["drafted", "? drafted"], ["unverified", "\u2298 behind ]: not verified"]),
      ...own(["accepted_now", "\u2713 accepted"]),
      ["bonus_now", ownToken],
      ...when(wrong, "wrong_now", "\u25B2 not the target's own"),
      ...when(
        any((each) => each.points("rejection").length > 0),
        "rejected_now",
        "\u2717 rejected"
      ),
      ...own(
        ["unreached_now", "\u2013 not reached"],
        ["discarded_now", "\u21BA verified, thrown away"],
        ["stale", "stale"],
        ["padding", "padding"]
      ),
      ["target", "target K/V"],
      ...when(drafters.size > 0, "draft", `${[...drafters].sort().join(" or ")} K/V`),
      ...when(
        any((each) => hasSource(each, "own")),
        "own",
        "K/V read with the head's own feature"
      ),
      ...when(
        any((each) => hasSource(each, "mask")),
        "mask",
        "K/V of a mask entry"
      ),
      ...when(held.has("stale"), "staleKV", "stale K/V"),
      ["written", "written now"],
      ...when(
        moves((phase) => phase !== ACCEPT2),
        "moved",
        "moved by realignment"
      ),
      ...when(
        // Only those of the target's K/V have arrows.
        moves((phase, all) => phase === ACCEPT2 && all.some((move) => move[0] === 0)),
        "compacted",
        "accepted draft moved within its row"
      ),
      ...when(
        any((each) => each.drifts),
        "drift",
        "position is not the index"
      ),
      ...when(broken, "violation", "violation"),
      ...when(other !== null, "differs", "not what the other run wrote"),
      ...films.flatMap(({ json }) => this._gaps(json))
    ];
  }
  /**
   * What a log lacks of the batch.
   * @param {FilmJson} json
   * @returns {[string, string][]}
   */
  _gaps({ gaps }) {
    return (gaps?.batch ?? []).map((words) => ["gap", words]);
  }
  key() {
    return [...this._seen()].sort().join();
  }
  describe() {
    return `Legend: ${this._shown().map(([, words]) => words).join("; ")}.`;
  }
  /** The entries of what is on screen. */
  _shown() {
    let seen = this._seen();
    return this.entries.filter(([look]) => seen.has(look));
  }
  _seen() {
    return seenAt(this.view.film, this.view.step);
  }
  /** What is on screen at the steps of the runs, each set once. */
  _states() {
    let states = /* @__PURE__ */ new Map(), { film, other } = this.view;
    for (let each of other ? [film, other] : [film])
      for (let step = 0; step < each.steps; step++) {
        let seen = seenAt(each, step);
        states.set([...seen].sort().join(), seen);
      }
    return [...states.values()];
  }
  /**
   * [look, words, x, y] of each entry, line after line
   * @param {number} width
   * @param {[string, string][]} entries
   */
  _places(width, entries) {
    let places = [], x = 12, y = 12;
    for (let [look, words] of entries) {
      let w = 26 + measureText(words, fontOf({ size: 11 })) + 16;
      x > 12 && x + w > width && ([x, y] = [12, y + 20]), places.push([look, words, x, y]), x += w;
    }
    return places;
  }
  /**
   * That of the step with most entries, so that nothing moves.
   * @param {number} width
   */
  height(width) {
    return this._heights.get(width, () => {
      this.states ??= this._states();
      let ends = this.states.map((seen) => {
        let entries = this.entries.filter(([look]) => seen.has(look));
        return this._places(width, entries).at(-1)?.[3] ?? 0;
      });
      return Math.max(...ends, 0) + 12;
    });
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    for (let [look, words, x, y] of this._places(width, this._shown()))
      this._sample(pen, look, x, y), pen.text(words, x + 26, y, { size: 11, fill: pen.p.muted });
  }
  /**
   * @param {Pen} pen
   * @param {string} name
   * @param {number} x
   * @param {number} y
   */
  _sample(pen, name, x, y) {
    let { p } = pen, sign = (text, fill) => pen.text(text, x + 10, y, { size: 12, weight: 700, fill, align: "center" }), bar = (look) => pen.rect(x, y - 3, 20, 6, { radius: 3, ...look }), special = {
      padding: () => sign("\xB7", p.muted),
      target: () => bar({ fill: p.target }),
      draft: () => bar({ fill: p.draft }),
      own: () => drawGuess(pen, "own", x, y, 20, 6),
      mask: () => drawGuess(pen, "mask", x, y, 20, 6),
      staleKV: () => bar({ fill: p.orangeSoft, hatch: p.orange, radius: 0 }),
      written: () => bar({ stroke: p.ink, radius: 2 }),
      moved: () => pen.line(x, y, x + 20, y, { stroke: p.blue, width: 1.75, arrow: !0 }),
      compacted: () => pen.line(x + 20, y, x, y, { stroke: p.green, width: 1.75, arrow: !0 }),
      drift: () => this._drift(pen, x, y),
      violation: () => sign("\u25B2", p.red),
      gap: () => sign("\u2205", p.muted),
      differs: () => {
        for (let up of [1, 4]) pen.rect(x + 2, y + 5 - up, 16, 1.5, { fill: p.red });
      }
    };
    special[name] ? special[name]() : pen.rect(x + 2, y - 7, 16, 14, { ...cellLooks(p)[name], radius: 4 });
  }
  /**
   * @param {Pen} pen
   * @param {number} x
   * @param {number} y
   */
  _drift(pen, x, y) {
    pen.rect(x, y - 6, 20, 12, { fill: pen.p.redSoft, radius: 2 }), pen.text("9+2", x + 10, y, { size: 9, fill: pen.p.red, weight: 700, align: "center" });
  }
};

// src/panels/masklayout.js
var MASK_CELL = 16, MASK_WIDEST = 22, MASK_READABLE = 6, MASK_SMALLEST = 3, MASK_TALLEST = 240, MASK_TICKS = 20, MASK_LINE = 18, MASK_WIDE = 480, MaskLayout = class {
  /**
   * @param {MaskCells} cells
   * @param {number} width
   */
  constructor(cells, width) {
    this.cells = cells, this.width = width, this.wide = width >= MASK_WIDE, this.names = Math.max(
      measureText(cells.queries[0].name, fontOf({ size: 11.5, weight: 700 })),
      measureText(
        cells.queries[cells.queries.length - 1].name,
        fontOf({ size: 11.5, weight: 700 })
      ),
      44
    ) + 10, this.left = PAD + this.names + (this.wide ? 70 : 0) + (cells.drifts ? 66 : 42), this.line = Math.min(MASK_CELL, MASK_TALLEST / cells.queries.length), this.height = this.line * cells.queries.length, this.parts = this._parts(width - PAD - this.left), this.right = Math.max(...this.parts.map((part) => this.end(part)));
  }
  /** @param {MaskPart} part */
  end(part) {
    return part.x + (part.stop - part.first) * part.cell;
  }
  /**
   * @param {number} room
   * @returns {MaskPart[]}
   */
  _parts(room) {
    let { slots, queries } = this.cells, least = this.width < 480 ? MASK_SMALLEST : MASK_READABLE, cell = least + 3, last = Math.min(slots, Math.max(...queries.map((query) => query.until)) + 1), cut = queries.length * cell > room * 0.75 - 48;
    if (room / slots >= least || cut)
      return [
        {
          first: 0,
          stop: slots,
          x: this.left,
          cell: Math.min(room / slots, MASK_WIDEST),
          folded: !1
        }
      ];
    let beyond = (slots - last) * cell <= 40 ? 0 : 40, stop = beyond ? last : slots, before = Math.min(120, room / 4), count = Math.floor((room - before - beyond - 8) / cell), first = Math.max(stop - count, 0), parts = first ? [{ first: 0, stop: first, x: this.left, cell: before / first, folded: !0 }] : [];
    parts.push({ first, stop, x: this.left + (first ? before + 8 : 0), cell, folded: !1 });
    let x = this.end(parts[parts.length - 1]) + 8;
    return beyond && parts.push({
      first: stop,
      stop: slots,
      x,
      cell: (beyond - 8) / (slots - stop),
      folded: !0
    }), parts;
  }
  /** @param {number} slot */
  x(slot) {
    let part = this.parts.find((each) => slot >= each.first && slot < each.stop) ?? this.parts[this.parts.length - 1];
    return part.x + (slot - part.first) * part.cell;
  }
  /** @param {number} x */
  slotAt(x) {
    let part = this.parts.find((each) => x >= each.x && x < this.end(each));
    return part ? Math.min(Math.floor((x - part.x) / part.cell) + part.first, part.stop - 1) : null;
  }
};

// src/panels/maskpaint.js
var MASK_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1 / 0];
function drawSight(pen, verdict, x, y, w, h, signed2) {
  let { p } = pen, hatched = w >= 6 && h >= 6, grain = (hatch) => hatched ? { hatch } : {};
  if (verdict === "hidden" ? pen.rect(x, y, w, h, { fill: p.greySoft, ...signed2 ? grain(p.grey) : {} }) : verdict === "hole" ? pen.rect(x, y, w, h, { fill: p.redSoft, ...hatched ? { stroke: p.red, width: 1.5 } : {} }) : verdict === "leak" && !signed2 ? pen.rect(x, y, w, h, { fill: p.red, ...grain(p.panel) }) : pen.rect(x, y, w, h, {
    fill: { seen: p.target, own: p.green, blank: p.greySoft, leak: p.red }[verdict]
  }), !signed2) return;
  let [cx, cy, arm] = [x + w / 2, y + h / 2, Math.min(w, h) * 0.22];
  verdict === "own" && pen.rect(cx - 1.5, cy - 1.5, 3, 3, { fill: p.panel, radius: 1.5 }), verdict === "hole" && pen.line(cx - arm, cy, cx + arm, cy, { stroke: p.red, width: 1.5 }), verdict === "leak" && (pen.line(cx - arm, cy - arm, cx + arm, cy + arm, { stroke: p.panel, width: 1.5 }), pen.line(cx - arm, cy + arm, cx + arm, cy - arm, { stroke: p.panel, width: 1.5 }));
}
var MaskPainter = class {
  /**
   * @param {Pen} pen
   * @param {View} view
   * @param {MaskLayout} at
   */
  constructor(pen, view, at) {
    this.pen = pen, this.view = view, this.at = at, this.cells = at.cells, this.p = pen.p, this.bottom = MASK_TICKS + at.height, this.lit = view.hover?.row === view.row ? view.hover : null;
  }
  paint() {
    let {
      at,
      cells: { queries }
    } = this, every = MASK_STEPS.find((step) => step * at.line >= (step === 1 ? 11.5 : 18)) ?? 1 / 0;
    this._ticks(), this._bands().forEach(([n, y, h]) => this._query(queries[n], MASK_TICKS + y, h)), queries.forEach((query, n) => {
      n % every === 0 && this._label(query, MASK_TICKS + Math.max((n + 0.5) * at.line, 7));
    }), this._grid(), this._crosshair();
  }
  // [query, y, height] of what is drawn: every query, or where several share a pixel the one with
  // the most wrong.
  _bands() {
    let {
      cells: { queries, leaks, holes },
      at
    } = this, bands = [], faulty = ({ segments }) => segments.filter((each) => each[2] === "leak" || each[2] === "hole"), well = !leaks.length && !holes.length, wrong = (n) => well ? 0 : sumOf(faulty(queries[n]).map(([start2, stop]) => stop - start2));
    for (let n = 0, y = 0; n < queries.length; y = Math.round(n * at.line)) {
      let worst = n;
      for (n += 1; n < queries.length && Math.round((n + 1) * at.line) <= y + 1; n++)
        wrong(n) > wrong(worst) && (worst = n);
      bands.push([worst, y, Math.round(n * at.line) - y]);
    }
    return bands;
  }
  /**
   * @param {Query} query
   * @param {number} y
   * @param {number} height
   */
  _query(query, y, height) {
    let { at } = this, h = height - (height >= 6 ? 1 : 0);
    for (let part of at.parts) {
      let signed2 = part.cell >= 7 && at.line >= 9;
      for (let [start2, stop, verdict] of query.segments) {
        let [first, last] = [Math.max(start2, part.first), Math.min(stop, part.stop)];
        if (first >= last) continue;
        let x = part.x + (first - part.first) * part.cell, w = (last - first) * part.cell, faulty = verdict === "leak" || verdict === "hole";
        if (!signed2 || !(faulty || verdict === "own"))
          drawSight(this.pen, verdict, x, y, faulty ? Math.max(w, 1.5) : w, h, signed2);
        else
          for (let slot = 0; slot < last - first; slot++)
            drawSight(this.pen, verdict, x + slot * part.cell, y, part.cell - 1, h, !0);
      }
    }
  }
  /**
   * @param {Query} query
   * @param {number} y
   */
  _label(query, y) {
    let { pen, at, p } = this, drift = at.cells.drifts > 0 && driftsAway(query), name = this._points(query) ? { size: 11.5, fill: p.blue, weight: 700 } : { size: 11.5, fill: p.ink };
    pen.text(query.name, PAD, y, name), at.wide && pen.text(query.text, PAD + at.names, y, {
      size: 11,
      mono: !0,
      fill: p.muted,
      max: 64
    });
    let known = query.position < 0 ? "\u2013" : `${query.position}`, words = drift ? `${known} \u2260 ${query.index}` : known;
    pen.text(words, at.left - 8, y, {
      size: 11,
      fill: drift ? p.red : p.muted,
      weight: drift ? 700 : 400,
      align: "right"
    });
  }
  /**
   * Whether a query is what is pointed at. Several drafts of a tree have one index.
   * @param {Query} query
   */
  _points(query) {
    let { film, step, row } = this.view;
    if (this.lit?.index !== query.index) return !1;
    let draft = draftAt(film, step, row, this.lit);
    return draft < 0 || query.node === 0 || draft === query.node - 1;
  }
  // Gaps between cells that are wide enough for them.
  _grid() {
    for (let { x, cell, first, stop, folded } of this.at.parts)
      if (!(folded || cell < 5))
        for (let slot = first + 1; slot < stop; slot++)
          this.pen.rect(x + (slot - first) * cell - 1, MASK_TICKS, 1, this.at.height, {
            fill: this.p.panel
          });
  }
  _ticks() {
    let { pen, at, p } = this, y = MASK_TICKS / 2 - 1, look = { size: 11, fill: p.muted };
    pen.text("query", PAD, y, look), pen.text(at.wide ? "position" : "pos.", at.left - 8, y, { ...look, align: "right" });
    for (let part of at.parts)
      part.folded ? this._folded(part, y, look) : this._numbers(part, y, look);
  }
  /**
   * @param {MaskPart} part
   * @param {number} y
   * @param {TextLook} look
   */
  _folded(part, y, look) {
    let { pen, at } = this, room = at.end(part) - part.x, long = `\u2026 ${counted(part.stop - part.first, "slot")}`;
    pen.text(pen.measure(long, look) <= room ? long : `\u2026 ${part.stop - part.first}`, part.x, y, {
      ...look,
      max: room + 6
    });
  }
  /**
   * @param {MaskPart} part
   * @param {number} y
   * @param {TextLook} look
   */
  _numbers(part, y, look) {
    let { pen, at } = this, every = MASK_STEPS.find((step) => step * part.cell >= 34) ?? 1 / 0;
    for (let slot = Math.ceil(part.first / every) * every; slot < part.stop; slot += every) {
      let x = part.x + (slot - part.first + 0.5) * part.cell, w = pen.measure(`${slot}`, look) / 2;
      x - w >= part.x - 4 && x + w <= at.end(part) + 8 && pen.text(`${slot}`, x, y, { ...look, align: "center" });
    }
  }
  // The slot under the pointer, wherever that is on the page.
  _crosshair() {
    if (!this.lit || this.lit.slot === null || this.lit.slot === void 0) return;
    let { pen, at, p } = this, slot = this._slotOf(this.lit.slot);
    if (slot === null) return;
    let part = at.parts.find((each) => slot >= each.first && slot < each.stop);
    if (!part) return;
    let x = at.x(slot), w = Math.max(part.cell, 2), label = `${slot}`, half = pen.measure(label, { size: 11, weight: 700 }) / 2 + 3;
    pen.rect(x - 1.5, MASK_TICKS - 2, w + 2, at.height + 4, {
      stroke: p.blue,
      width: 2,
      radius: 2
    });
    let middle = Math.min(Math.max(x + part.cell / 2, at.left + half), at.width - PAD / 2 - half);
    pen.rect(middle - half - 10, 1, 2 * half + 20, 15, { fill: p.panel }), pen.text(label, middle, MASK_TICKS / 2 - 1, {
      size: 11,
      weight: 700,
      fill: p.blue,
      align: "center"
    });
  }
  /**
   * Where something that now lies in `slot` lay at the time of the forward, null for a draft that it
   * did not read. The draft model writes drafts of trees elsewhere than the target.
   * @param {number} slot
   */
  _slotOf(slot) {
    let { film, step, row } = this.view, draft = draftAt(film, step, row, this.lit), query = this.cells.queries.find((each) => each.node === draft + 1);
    if (draft >= 0) return query?.slot ?? null;
    for (let before = 0; before < this.cells.slots; before++)
      if (this.cells.now(before) === slot) return before;
    return slot;
  }
};

// src/panels/maskwords.js
function forwardWords(film, { kind, queries }) {
  let drafter = drafterName(film), forwards = new Set(queries.map((query) => query.forward)).size;
  return [
    "prefill",
    forwards === 1 ? `${drafter}'s forward` : `${drafter}'s ${forwards} forwards`,
    "verification"
  ][kind];
}
function maskVerdict(film, step, cells) {
  if (!cells) return [!0, absence(film, step)];
  if (!film.checked) return [!0, "Whether a query should see what it sees is not judged here."];
  let wrong = [], { drifts } = cells;
  return cells.leaks.length && wrong.push(`${slotCount(cells.leaks, "leaks", "leak")}: ${nature(film, cells)}`), cells.holes.length && wrong.push(`${slotCount(cells.holes, "is", "are")} not seen, which hold the row's own tokens`), cells.lost > 0 && wrong.push(`K/V of ${counted(cells.lost, "token")} of the row is in no slot`), drifts && wrong.push(
    counted(
      drifts,
      "position is not its token's index",
      "positions are not their tokens' indices"
    )
  ), wrong.length ? [!1, `\u2717 ${wrong.join("; ")}.`] : [!0, "\u2713 Every query sees its row's tokens up to itself, each once, and nothing else."];
}
function absence(film, step) {
  let unknown = film.json.gaps?.masks[film.phase(step) === 1 ? 1 : 0];
  return unknown || (film.phase(step) === 0 ? "This row was prefilled in an earlier round: no forward reads its K/V in this phase." : film.json.meta.num_draft_tokens ? film.json.head ? `The ${film.json.head} reads one state of the target, so there is nothing to mask.` : "Drafting feeds no model here, so there is nothing to mask." : "Nothing is drafted in this run.");
}
function slotCount(ranges, one, many) {
  let total = ranges.reduce((sum, [start2, stop]) => sum + stop - start2, 0);
  return total === 1 ? `slot ${ranges[0][0]} ${one}` : `${total} slots (${rangeWords(ranges)}) ${many}`;
}
function nature(film, cells) {
  let slot = cells.leaks[0][0], sees = ([first, stop, verdict]) => verdict === "leak" && slot >= first && slot < stop, query = cells.queries.find((each) => each.segments.some(sees)), held = cells.holds(slot);
  return held && query && held.index > query.index && (held.kind === "held" || held.kind === "drafted") ? `index ${held.index} lies ahead of query ${query.name}` : contentWords(film, cells, slot);
}
function contentWords(film, cells, slot) {
  let held = cells.holds(slot);
  if (!held || held.kind === "empty") return "empty";
  if (held.index < 0) return "padding";
  let counts = held.kind === "held" || held.kind === "drafted", token = held.token < 0 ? "a mask entry" : quoted(film.text(held.token));
  return `${counts ? "" : "stale, "}${token}, index ${held.index}`;
}
function rangesOf(query, sights) {
  let ranges = [];
  for (let [start2, stop, sight] of query.segments)
    sights.includes(sight) && ranges.push([start2, stop]);
  return joinedRanges(ranges);
}

// src/panels/mask.js
var SIGHTS = {
  seen: "sees",
  own: "sees: a draft of this round",
  blank: "does not see",
  hidden: "stale, rightly hidden",
  leak: "leak: must not be seen",
  hole: "hole: should be seen"
}, MaskPanel = class {
  static id = "mask";
  /** @param {View} view */
  constructor(view) {
    this.view = view, this._judged = new Kept(), this._places = new Kept(20);
  }
  empty() {
    return !this.view.film.rows(this.view.step)[this.view.row];
  }
  // The phases behind the verification show its forward again; what is pointed at lies where the
  // step has it.
  key() {
    let { film, step, row, hover } = this.view, lit = hover?.row === row ? `${step} ${hover.slot} ${hover.index} ${hover.draft}` : "";
    return `${film.round(step)} ${Math.min(film.phase(step), 2)} ${row} ${lit}`;
  }
  /**
   * Verdicts of a phase of this round, or null.
   * @param {number} [phase]
   */
  cells(phase = this.view.film.phase(this.view.step)) {
    let { film, step, row } = this.view, at = step - film.phase(step) + phase;
    return this._judged.get(`${at} ${row}`, () => maskCells(film, at, row));
  }
  /** @param {number} width */
  _layout(width) {
    let cells = this.cells();
    return cells && this._places.get(
      `${this.view.step} ${this.view.row} ${width}`,
      () => new MaskLayout(cells, width)
    );
  }
  title() {
    let cells = this.cells(), name = `Row ${this.view.row} \xB7 attention mask`;
    if (!cells && this._unknown()) return name;
    if (!cells) return `${name}, which no forward needs in this phase`;
    let queries = counted(cells.queries.length, "query", "queries");
    return `${name} of the ${forwardWords(this.view.film, cells)}, ${queries} \xD7 ${counted(cells.slots, "slot")}`;
  }
  heading() {
    let cells = this.cells();
    if (!cells) return this.title();
    let size = `${counted(cells.queries.length, "query", "queries")} \xD7 ${counted(cells.slots, "slot")}`;
    return `Row ${this.view.row} \xB7 ${forwardWords(this.view.film, cells)}, ${size}`;
  }
  // Why a log does not say what this phase's queries saw; nothing where it does.
  _unknown() {
    let { film, step } = this.view;
    return film.json.gaps?.masks[film.phase(step) === 1 ? 1 : 0];
  }
  /**
   * [whether all is well, what there is to say]
   * @param {MaskCells | null} [cells]
   */
  verdict(cells = this.cells()) {
    return maskVerdict(this.view.film, this.view.step, cells);
  }
  describe() {
    let text = `${this.title()}. ${this.verdict()[1]}`;
    return this.cells() ? text : `${text} Its queries and slots are listed in the phases with a forward.`;
  }
  table() {
    let cells = this.cells(), caption = this.verdict()[1], judged = this.view.film.checked, head = [
      "query",
      "token",
      "index",
      "position",
      "its slot",
      "sees slots",
      ...judged ? ["leaks", "holes", "stale, hidden"] : []
    ], of = (query, ...verdicts) => rangeWords(rangesOf(query, verdicts), 12) || "\u2013", rows = (cells?.queries ?? []).slice(-400).map((query) => [
      query.name,
      query.text,
      query.index,
      query.position < 0 ? "\u2013" : query.position,
      query.slot,
      of(query, "seen", "own", "leak"),
      ...judged ? [of(query, "leak"), of(query, "hole"), of(query, "hidden")] : []
    ]);
    return { caption, head, rows };
  }
  /**
   * The phases of a round keep one height, so that nothing below jumps from one to the next.
   * @param {number} width
   */
  height(width) {
    let most = (size) => Math.max(...[0, 1, 2].map((phase) => size(this.cells(phase)))), matrix = most(
      (cells) => Math.min((cells?.queries.length ?? 3) * MASK_CELL, MASK_TALLEST)
    ), words = most((cells) => this._legend(width, cells).length) + most((cells) => this._words(width, cells).length);
    return MASK_TICKS + matrix + 20 + MASK_LINE * words;
  }
  /**
   * @param {number} width
   * @param {MaskCells | null} cells
   */
  _words(width, cells) {
    let [right, words] = this.verdict(cells);
    return wrapWords(words, width - 2 * PAD, { size: 12, weight: right ? 400 : 600 });
  }
  /** @param {Sight} verdict */
  _sightWords(verdict) {
    let { film, step } = this.view;
    return film.phase(step) === 1 && film.json.meta.draft_kv === "masks" && verdict === "own" ? "sees: a mask entry of this round" : SIGHTS[verdict];
  }
  /**
   * Lines of [verdict, x].
   * @param {number} width
   * @param {MaskCells | null} cells
   */
  _legend(width, cells) {
    let lines2 = [], x = width, names = (
      /** @type {Sight[]} */
      Object.keys(SIGHTS)
    );
    for (let verdict of names.filter((each) => cells?.sights.has(each))) {
      let w = 20 + measureText(this._sightWords(verdict), fontOf({ size: 11 })) + 14;
      x + w - 14 > width - PAD && (lines2.push([]), x = PAD), lines2[lines2.length - 1].push([verdict, x]), x += w;
    }
    return lines2;
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    let at = this._layout(width), cells = this.cells(), [right] = this.verdict(), { p } = pen, y = MASK_TICKS + (at ? at.height + 12 : 0) + MASK_LINE / 2;
    at && new MaskPainter(pen, this.view, at).paint();
    for (let line of this._legend(width, cells)) {
      for (let [verdict, x] of line)
        drawSight(pen, verdict, x, y - 6, 12, 12, !0), pen.text(this._sightWords(verdict), x + 20, y, { size: 11, fill: p.muted });
      y += MASK_LINE;
    }
    at && (y += 4);
    let look = { size: 12, fill: right ? p.muted : p.red, weight: right ? 400 : 600 };
    this._words(width, cells).forEach((line, n) => pen.text(line, PAD, y + n * MASK_LINE, look));
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    let at = this._layout(width), n = at ? Math.floor((y - MASK_TICKS) / at.line) : -1, query = at?.cells.queries[n];
    if (!query) return null;
    let { film, step, row } = this.view, { cells } = at, slot = at.slotAt(x), draft = query.node > 0 && query.name !== "other" ? query.node - 1 : -1, drift = film.checked && query.position === query.index ? "" : `, index ${query.index}`, position = `position ${query.position < 0 ? "not known" : query.position}${drift}`, name = `query ${query.name} ${quoted(query.text)} (${position})`;
    if (slot === null) {
      let hint2 = `${name}, in slot ${query.slot}`, place = { row, slot: cells.now(query.slot), index: query.index, hint: hint2 };
      return draft < 0 ? place : { ...place, slot: slotsOf(film, step, row)[draft], draft };
    }
    let verdict = query.segments.find((each) => slot >= each[0] && slot < each[1])?.[2], held = cells.holds(slot), does = verdict === "seen" || verdict === "own" || verdict === "leak" ? "sees" : "does not see", wrong = verdict === "leak" || verdict === "hole" ? ` \u2014 a ${verdict}` : "", hint = `${name} ${does} slot ${slot}: ${contentWords(film, cells, slot)}${wrong}`;
    return { row, slot: cells.now(slot), index: held?.index ?? -1, hint };
  }
};

// src/panels/lines.js
var TALLEST = 21, LOWEST2 = 13, USUAL_ROOM = 340, HEAD = 20;
function lineHeight(count, room = USUAL_ROOM) {
  return Math.min(Math.max(Math.floor(room / Math.max(count, 1)), LOWEST2), TALLEST);
}
var Lines = class {
  /**
   * @param {number} width
   * @param {number} count
   */
  constructor(width, count) {
    this.width = width, this.count = count, this.line = lineHeight(count), this.height = HEAD + this.line * count + 4;
  }
  /** @param {number} share of the width between the margins */
  x(share) {
    return PAD + share * (this.width - 2 * PAD);
  }
  /** @param {number} row */
  middle(row) {
    return HEAD + this.line * (row + 0.5);
  }
  /** @param {number} y */
  rowAt(y) {
    let row = Math.floor((y - HEAD) / this.line);
    return row >= 0 && row < this.count ? row : -1;
  }
  /**
   * The heads of the columns, and the band of the chosen row.
   * @param {Pen} pen
   * @param {Column[]} columns
   * @param {number} chosen
   */
  frame(pen, columns, chosen2) {
    for (let { head, x, right } of columns)
      pen.text(head, this.x(x), HEAD / 2, {
        size: 11,
        fill: pen.p.muted,
        align: right ? "right" : "left"
      });
    chosen2 >= 0 && chosen2 < this.count && this.count > 1 && pen.rect(4, HEAD + this.line * chosen2, this.width - 8, this.line, {
      fill: pen.p.blueSoft,
      radius: 4
    });
  }
  /**
   * @param {Pen} pen
   * @param {number} row
   * @param {Column} column
   * @param {string} words
   * @param {TextLook} [look]
   */
  cell(pen, row, { x, right }, words, look = {}) {
    let size = this.line < 16 ? 10 : 11.5, align = right ? "right" : "left";
    pen.text(words, this.x(x), this.middle(row), { size, align, ...look });
  }
};

// src/panels/entered.js
var NAME = { head: "row", x: 0 }, LENGTH = { head: "prompt, new tokens", x: 0.25 }, SINCE = { head: "in the batch", x: 1, right: !0 }, BAR = 0.42, FOOT = 17, EnteredPanel = class {
  static id = "rows";
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    let { rounds, requests } = view.film.json;
    this.since = /* @__PURE__ */ new Map(), rounds.forEach(
      ({ rows }, round) => rows.forEach(({ request }) => {
        this.since.has(request) || this.since.set(request, round);
      })
    ), this.longest = Math.max(...requests.map(({ prompt, budget }) => prompt + budget), 1), this.most = Math.max(...rounds.map(({ rows }) => rows.length), 1);
  }
  empty() {
    return !this._rows.length;
  }
  get _rows() {
    return this.view.film.rows(this.view.step);
  }
  key() {
    let { film, step, row } = this.view;
    return `${film.round(step)} ${row}`;
  }
  /** @param {RowEntry} row */
  _enters({ request }) {
    return this.since.get(request) === this.view.film.round(this.view.step);
  }
  title() {
    let entered = this._rows.filter((row) => this._enters(row)).length, words = entered ? `${counted(entered, "request")} entered` : "no request entered";
    return `Rows of round ${this.view.film.round(this.view.step)} \xB7 ${words}`;
  }
  /** @param {RowEntry} row */
  _sinceWords(row) {
    return this._enters(row) ? "enters now" : `since round ${this.since.get(row.request)}`;
  }
  _waiting() {
    let round = this.view.film.round(this.view.step), waits = (this.view.film.json.waits ?? []).filter(
      ([, first, stop]) => first <= round && round < stop
    );
    if (!waits.length) return "No request waits.";
    let numbers = waits.map(([request]) => request).sort((a, b) => a - b), ranges = rangeWords(joinedRanges(numbers.map((number) => [number, number + 1])), 6);
    return `${counted(numbers.length, "request")} wait for a row: ${ranges}.`;
  }
  describe() {
    return `${this.title()}. ${this._waiting()}`;
  }
  table() {
    let rows = this._rows.map((row, number) => {
      let { prompt, budget } = this.view.film.json.requests[row.request];
      return [number, row.request, prompt, row.length - prompt, budget, this._sinceWords(row)];
    }), head = ["row", "request", "prompt", "new tokens", "budget", "in the batch"];
    return { caption: this._waiting(), head, rows };
  }
  /** @param {number} width */
  _foot(width) {
    return wrapWords(this._waiting(), width - 2 * PAD, { size: 12 });
  }
  /** @param {number} width */
  height(width) {
    return new Lines(width, this.most).height + FOOT * 2 + 4;
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    let { p } = pen, at = new Lines(width, this._rows.length);
    at.frame(pen, [NAME, LENGTH, SINCE], this.view.row), this._rows.forEach((row, number) => {
      let look = this._enters(row) ? { weight: 700, fill: p.blue } : { fill: p.muted };
      at.cell(pen, number, NAME, `${number} \xB7 request ${row.request}`, { max: width * 0.23 }), this._bar(pen, at, row, number), at.cell(pen, number, SINCE, this._sinceWords(row), look);
    }), this._foot(width).slice(0, 2).forEach(
      (line, n) => pen.text(line, PAD, at.height + 10 + n * FOOT, { size: 12, fill: p.ink })
    );
  }
  /**
   * @param {Pen} pen
   * @param {Lines} at
   * @param {RowEntry} row
   * @param {number} number
   */
  _bar(pen, at, row, number) {
    let { p } = pen, { prompt, budget } = this.view.film.json.requests[row.request], x = at.x(LENGTH.x), px = BAR * (at.width - 2 * PAD) / this.longest, h = Math.max(Math.min(at.line - 5, 11), 6), y = at.middle(number) - h / 2;
    pen.rect(x, y, (prompt + budget) * px, h, { stroke: p.faint, radius: 2 }), pen.rect(x, y, prompt * px, h, { fill: p.grey, radius: 2 }), pen.rect(x + prompt * px, y, Math.max((row.length - prompt) * px, 0), h, { fill: p.target });
  }
  /**
   * @param {number} _x
   * @param {number} y
   * @param {number} width
   */
  hit(_x, y, width) {
    let row = new Lines(width, this._rows.length).rowAt(y), entry = this._rows[row];
    if (!entry) return null;
    let { prompt, budget } = this.view.film.json.requests[entry.request], made = `${counted(entry.length - prompt, "new token")} of ${budget}`, hint = `row ${row}: request ${entry.request}, prompt of ${counted(prompt, "token")}, ${made}`;
    return { row, slot: null, index: null, hint };
  }
};

// src/panels/moves.js
var NAME2 = { head: "row", x: 0 }, LENGTH2 = { head: "tokens", x: 0.15 }, END = { head: "K/V ends at slot", x: 0.62, right: !0 }, MOVED = { head: "moved", x: 1, right: !0 }, FOOT2 = 17, MovesPanel = class {
  static id = "moves";
  /** @param {View} view */
  constructor(view) {
    this.view = view, this.most = Math.max(...view.film.json.rounds.map(({ rows }) => rows.length), 1);
  }
  empty() {
    return !this._rows.length;
  }
  get _rows() {
    return this.view.film.rows(this.view.step);
  }
  // Until the drafts are judged, the panel shows where the rows are.
  get _done() {
    return this.view.film.phase(this.view.step) === this.view.film.phases - 1;
  }
  key() {
    let { film, step, row } = this.view;
    return `${film.round(step)} ${film.phase(step)} ${row}`;
  }
  title() {
    let round = this.view.film.round(this.view.step);
    if (!this._done) return `Where the rows end \xB7 round ${round}, before it is synchronised`;
    let moved = this._rows.filter((_, row) => this._move(row)).length;
    return `Where the rows end \xB7 round ${round}, ${counted(moved, "row")} moved`;
  }
  /**
   * How far to the right the target's K/V of a row moved, from which row, and how many slots.
   * @param {number} row
   */
  _move(row) {
    if (!this._done) return null;
    let found = null, slots = 0;
    for (let [model, , from, fromSlot, to, toSlot, length] of this.view.film.stage(this.view.step).moves) {
      if (model !== 0 || to !== row) continue;
      found = { by: from === to ? toSlot - fromSlot : 0, from, slots: slots + length }, slots += length;
    }
    return found;
  }
  /** @param {number} row */
  _moveWords(row) {
    let move = this._move(row);
    if (!move) return this._done ? "stays" : "";
    let slots = counted(move.slots, "slot");
    return move.from !== row ? `from row ${move.from}, ${slots}` : `${Math.abs(move.by)} ${move.by > 0 ? "right" : "left"}, ${slots}`;
  }
  /**
   * The last slot whose K/V counts: that of the last token does not exist yet.
   * @param {RowEntry} row
   * @param {number} number
   */
  _end(row, number) {
    let { film, step } = this.view;
    return this._done ? row.finished ? null : row.pending_after - 1 : (film.stage(step).pending[number] ?? row.pending) - 1;
  }
  /** @param {RowEntry} row */
  _lengthWords(row) {
    return this.view.film.judged(this.view.step) ? `${row.length} \u2192 ${row.length + row.gained}${row.finished ? ", ended" : ""}` : `${row.length}`;
  }
  _sum() {
    let { film, step } = this.view, { bytes } = film.scene(step);
    return this._done ? film.json.gaps?.bytes ? film.json.gaps.bytes : bytes ? `${bytesOf(bytes)} of K/V were copied in this round.` : "No K/V was copied in this round." : "Nothing has moved yet in this round.";
  }
  describe() {
    return `${this.title()}. ${this._sum()}`;
  }
  table() {
    let rows = this._rows.map((row, number) => [
      number,
      row.request,
      this._lengthWords(row),
      this._end(row, number) ?? "ended",
      this._moveWords(number)
    ]), head = ["row", "request", "tokens", "K/V ends at slot", "moved"];
    return { caption: this._sum(), head, rows };
  }
  /** @param {number} width */
  height(width) {
    return new Lines(width, this.most).height + FOOT2 + 4;
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    let { p } = pen, at = new Lines(width, this._rows.length);
    at.frame(pen, [NAME2, LENGTH2, END, MOVED], this.view.row), this._rows.forEach((row, number) => {
      let moved = this._move(number);
      at.cell(pen, number, NAME2, `${number}`, { weight: 650 }), at.cell(pen, number, LENGTH2, this._lengthWords(row), { max: width * 0.3 }), at.cell(pen, number, END, `${this._end(row, number) ?? "\u2013"}`, { weight: 650 });
      let look = moved ? { fill: p.blue, weight: 650 } : { fill: p.muted };
      at.cell(pen, number, MOVED, this._moveWords(number), { ...look, max: width * 0.36 });
    });
    let [line] = wrapWords(this._sum(), width - 2 * PAD, { size: 12 });
    pen.text(line, PAD, at.height + 9, { size: 12, fill: p.ink });
  }
  /**
   * @param {number} _x
   * @param {number} y
   * @param {number} width
   */
  hit(_x, y, width) {
    let row = new Lines(width, this._rows.length).rowAt(y);
    if (!this._rows[row]) return null;
    let hint = `row ${row}: ${this.view.film.stage(this.view.step).words_of?.[row] ?? ""}`;
    return { row, slot: null, index: null, hint };
  }
};

// src/panels/capacity.js
var TALL = 16, SIGNS_FROM2 = 26, HUES = 6;
function hue(p, row) {
  return p[`row${row % HUES}`];
}
function drawCapacity(pen, at) {
  let spent = spending(at.film, at.step);
  if (!spent) return;
  let top = at.bottom + 8;
  pen.text("capacity", 12, top + TALL / 2, { size: 10.5, fill: pen.p.muted }), pen.text(
    spent.known ? `${spent.drafts.length} of ${spent.capacity}` : `${spent.capacity}`,
    GUTTER - 8,
    top + TALL / 2,
    {
      size: 10.5,
      fill: pen.p.muted,
      align: "right"
    }
  ), spent.drafts.length && rowHues(pen, at);
  let { cell, across } = at.strip;
  for (let n = 0; n < spent.capacity; n++) {
    let x = GUTTER + n % across * cell, y = top + Math.floor(n / across) * 20, draft = spent.drafts[n];
    draft ? drawShare(pen, at, draft, x, y, cell) : pen.rect(x + 1, y, cell - 2, TALL, { stroke: pen.p.faint, radius: 3 });
  }
}
function rowHues(pen, at) {
  at.rows.forEach((row, number) => {
    let { tokens } = at.lanes[number];
    row.gained && pen.rect(5, tokens.y, 4, tokens.h, { fill: hue(pen.p, number), radius: 2 });
  });
}
function drawShare(pen, at, { row, draft }, x, y, cell) {
  let { p } = pen, own = row === at.view.row, stroke = own ? p.blue : void 0;
  pen.rect(x + 1, y, cell - 2, TALL, { fill: hue(p, row), stroke, width: 1.5, radius: 3 });
  let sign = cell >= SIGNS_FROM2 && accepts(at, row, draft) ? "\u2713" : "", look = { size: 10, weight: own ? 700 : 400, align: "center" };
  pen.text(`${row}${sign}`, x + cell / 2, y + TALL / 2, look);
}
function accepts(at, row, draft) {
  return at.film.judged(at.step) && isAccepted(at.rows[row], draft);
}
function capacityHit(at, x, y) {
  let spent = spending(at.film, at.step);
  if (!spent || x < GUTTER) return null;
  let { cell, across } = at.strip, line = Math.floor((y - at.bottom - 8) / 20), column = Math.floor((x - GUTTER) / cell), n = line * across + column;
  if (line < 0 || column >= across || n >= spent.capacity) return null;
  let place = `${n + 1} of the round's capacity of ${counted(spent.capacity, "draft")}`, taken = spent.drafts[n];
  if (!taken) {
    let unused = spent.known ? "not used" : "not spent yet";
    return { row: null, slot: null, index: null, hint: `${place}: ${unused}` };
  }
  let { row, draft } = taken, index = at.rows[row].length + depthOf(at.rows[row], draft) - 1, accepted = accepts(at, row, draft) ? ", accepted" : "";
  return { row, slot: null, index, hint: `${place}: row ${row}, draft ${draft + 1}${accepted}` };
}
function capacityWords({ film, step }) {
  let spent = spending(film, step);
  if (!spent) return "";
  let capacity = `. Capacity: ${counted(spent.capacity, "draft")}`;
  if (!spent.known) return `${capacity}, not spent yet.`;
  let shares = film.rows(step).map(({ verified }, row) => `row ${row} gets ${verified}`).join(", "), unused = spent.capacity - spent.drafts.length;
  return `${capacity}; ${shares}; ${unused} not used.`;
}

// src/panels/frame.js
var TICKS = [1, 5, 10, 25, 50, 100, 250, 500, 1e3], FramePainter = class {
  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  constructor(pen, at) {
    this.pen = pen, this.at = at;
  }
  paint() {
    this._backdrop(), this._axis();
  }
  _backdrop() {
    let { pen, at } = this, lane = at.lanes[at.view.row];
    lane && at.rows.length > 1 && pen.rect(4, lane.y, at.width - 8, lane.height, { fill: pen.p.blueSoft, radius: 6 });
  }
  _axis() {
    let { pen, at } = this, y = at.top - 8, look = { size: 10, fill: pen.p.muted };
    if (!at.shared) {
      let turned = at.view.turn > 0.5;
      pen.text(turned ? "position" : "slot", GUTTER - 8, y, { ...look, align: "right" }), pen.text(turned ? "0" : "each row has its own end; bars are to scale", GUTTER + 2, y, {
        ...look,
        max: at.x(0, at.begin(at.rows[0])) - GUTTER
      });
      return;
    }
    let every = TICKS.find((each) => each * at.cell >= 44) ?? 2e3, first = Math.ceil(Math.max(at.firsts[0], 0) / every) * every, stop = Math.min((at.firsts[0] ?? 0) + at.count, at.last);
    at.fold && at.firsts[0] && pen.text("0", GUTTER + 2, y, look);
    let drafts = at.begin(at.rows[0]) + 1;
    for (let slot = first; slot < stop; slot += every)
      (slot < drafts || (slot - drafts) * at.cell > 56) && pen.text(String(slot), at.x(0, slot) + at.cell / 2, y, { ...look, align: "center" });
    pen.text("slot", GUTTER - 8, y, { ...look, align: "right" });
  }
  /**
   * @param {RowEntry} row
   * @param {number} number
   */
  label(row, number) {
    let { pen, at } = this, lane = at.lanes[number], judged = at.film.judged(at.step), middle = lane.tokens.y + lane.tokens.h / 2, small = lane.height <= 14, size = lane.open ? 12.5 : small ? 9.5 : 11;
    if (pen.text(small ? String(number) : `row ${number}`, 12, middle, { size, weight: 650 }), judged) this._gain(row, middle, small);
    else {
      let look = { size: small ? 9 : 10.5, fill: pen.p.muted, align: "right" };
      pen.text(`n ${row.length}`, GUTTER - 8, middle, look);
    }
    lane.open && at.signs && this._details(row, number);
  }
  /**
   * Under the name of a row that is open: its length, its request, and what its lanes are.
   * @param {RowEntry} row
   * @param {number} number
   */
  _details(row, number) {
    let { pen, at } = this, judged = at.film.judged(at.step), named = number === at.view.row && at.texts, end = row.finished ? " \xB7 end" : "", words = judged ? `n ${row.length}\u2192${row.length + row.gained}${end}` : `request ${row.request}`, { tokens, notes } = at.lanes[number], y = notes ? notes.y + notes.h / 2 : tokens.y + tokens.h + 6;
    pen.text(words, 12, y, { size: 10.5, fill: pen.p.muted, max: GUTTER - 18 }), named && this._laneNames(at.lanes[number]);
  }
  /** @param {RowLanes} lane */
  _laneNames(lane) {
    let { pen } = this, look = { size: 8.5, fill: pen.p.muted, align: "right" }, positions = lane.positions ?? lane.tokens;
    pen.text("position", GUTTER - 4, positions.y + positions.h / 2, look);
    let drafter = this.at.film.json.head ? "head" : "draft", names = keepsNothing(this.at.film) ? "target K/V" : `target, ${drafter} K/V`;
    pen.text(names, GUTTER - 4, lane.target.y + lane.target.h, look);
  }
  /**
   * @param {RowEntry} row
   * @param {number} y
   * @param {boolean} small
   */
  _gain(row, y, small) {
    let { p } = this.pen, [x, h, size] = small ? [GUTTER - 46, 11, 9] : [GUTTER - 46, 16, 11], full = isFull(row), fill = row.gained === 0 ? p.greySoft : row.accepted ? p.greenSoft : p.orangeSoft, stroke = row.gained === 0 ? p.grey : full ? p.green : void 0, words = row.gained ? `+${row.gained}` : "idle";
    this.pen.rect(x, y - h / 2, 38, h, { fill, stroke, radius: h / 2 }), this.pen.text(words, x + 19, y, { size, weight: 650, align: "center" });
  }
};

// src/panels/fold.js
var FLAT = /* @__PURE__ */ new Set(["held", "stale", "drafted"]);
function drawFolds(pen, at, number, slide) {
  if (!at.fold) return;
  let { tokens } = at.lanes[number], looks = cellLooks(pen.p), inset = Math.min(3, tokens.h / 6), band = { y: tokens.y + inset, h: tokens.h - 2 * inset }, count = 0, ends = [1 / 0, -1 / 0];
  for (let run of at.film.lane(at.step, "tokens", number)) {
    let kind = at.film.json.kinds[run[2]];
    if (kind === "padding" && at.places.shows(run) && drawPadding(pen, at, number, run), !(run[3] < 0 || !at.places.shows(run)))
      for (let [slot, stop, origin] of foldedParts(at, number, run)) {
        let first = at.places.firstPosition(run) + slot - run[0], x = at.x(number, slot, first) + slide, w = at.x(number, stop, first + stop - slot) + slide - x;
        pen.rect(x, band.y, w, band.h, foldLook(looks, kind === "held" ? origin : kind, w)), kind === "held" && (count += stop - slot, ends = [Math.min(ends[0], x), Math.max(ends[1], x + w)]);
      }
  }
  count && drawLength(pen, at, number, count, ends);
}
function drawPadding(pen, at, number, [first, stop]) {
  let { tokens } = at.lanes[number], end = at.x(number, Math.min(stop, at.firsts[number])), y = tokens.y + tokens.h / 2;
  at.view.turn || pen.line(at.x(number, first) + 2, y, end - 4, y, { stroke: pen.p.grey, dash: [1.5, 4] });
}
function foldedParts(at, number, run) {
  let [first, stop, , index, , request] = run, [low, high] = at.places.full(number, first, stop, at.places.firstPosition(run)), prompt = Math.min(
    Math.max(first + at.film.json.requests[request].prompt - index, first),
    stop
  );
  return (low >= high ? [[first, stop]] : [
    [first, low],
    [high, stop]
  ]).flatMap(([from, to]) => {
    let cut = Math.min(Math.max(prompt, from), to);
    return [
      [from, cut, "p"],
      [cut, to, "a"]
    ].filter(([one, other]) => other > one);
  });
}
function foldLook(looks, kind, w) {
  let look = looks[kind];
  return kind === "p" || kind === "a" ? { fill: look.fill } : { fill: look.strip ?? look.fill, hatch: w > 4 ? look.hatch : void 0 };
}
function drawLength(pen, at, number, count, [left, right]) {
  let lane = at.lanes[number], look = { size: lane.open ? 10 : 9, align: "center" }, room = right - left - 4, words = [`${count} tokens`, `${count}`].find((each) => pen.measure(each, look) <= room), middle = lane.tokens.y + lane.tokens.h / 2;
  words && pen.text(words, (left + right) / 2, middle, { ...look, fill: pen.p.ink });
}
function drawHung(pen, at, lane, { kind, token }, x) {
  let { notes } = lane;
  if (!notes) return;
  let look = cellLooks(pen.p)[kind];
  pen.rect(x + 1, notes.y, at.cell - 2, notes.h, { ...look, radius: 3 });
  let middle = notes.y + notes.h / 2 + 0.5, sign = { size: 9, fill: signFills(pen.p)[kind] ?? pen.p.muted, weight: 700 };
  if (!at.texts)
    return pen.text(SIGNS[kind], x + at.cell / 2, middle, { ...sign, align: "center" });
  pen.text(SIGNS[kind], x + 4, middle, sign);
  let text = { size: Math.min(notes.h - 2, 10.5), mono: !0, fill: pen.p.ink };
  pen.text(at.film.text(token), x + 14, middle, { ...text, max: at.cell - 17 });
}
function drawStrip(pen, look, kind, { x, y, w, h }, cell) {
  let { p } = pen, fill = look.strip ?? look.fill;
  if (FLAT.has(kind))
    return pen.rect(x, y, w, h, { fill, hatch: cell > 3 ? look.hatch : void 0 });
  let low = Math.max(Math.round(h * 0.38), 1);
  if (HUNG.has(kind)) return pen.rect(x, y + h - low, w, low, { fill: p.orange });
  if (!(kind === "bonus_now" || kind === "wrong_now") || w < 4 || h < 5)
    return pen.rect(x, y, w, h, { fill: kind === "bonus_now" ? p.bonus : fill });
  pen.rect(x + 1, y, w - 1, h, { fill: kind === "bonus_now" ? p.bonus : fill }), pen.rect(x + w / 2 - 1, y + h / 2 - 1.5, 3, 3, { fill: p.page });
}

// src/panels/positionpaint.js
function drawPosition(pen, at, band, cell, x) {
  let { p } = pen, y = band.y + band.h / 2, drift = cell.position - cell.index;
  if (drift && cell.kind !== "stale" && at.film.checked) {
    let look2 = {
      size: at.large ? 10 : 9,
      fill: p.red,
      weight: 700,
      align: "center",
      max: at.cell - 3
    }, middle = x + at.cell / 2, by = `${drift > 0 ? "+" : "\u2212"}${Math.abs(drift)}`, apart = at.stacked ? 4.5 : 0;
    return pen.rect(x + 1, band.y, at.cell - 2, band.h, {
      fill: p.redSoft,
      radius: 2
    }), apart && pen.text(by, middle, y + apart, { ...look2, weight: 400 }), pen.text(apart ? `${cell.position}` : `${cell.position}${by}`, middle, y - apart, look2);
  }
  let sign = cell.kind === "held" || cell.kind === "unreached_now" ? "" : SIGNS[cell.kind] ?? "", look = sign ? { fill: p.ink, weight: 650 } : { fill: p.muted }, size = at.large ? 10 : 9;
  pen.text(`${sign}${cell.position}`, x + at.cell / 2, y, {
    size,
    align: "center",
    max: at.cell - 1,
    ...look
  });
}

// src/panels/lanes.js
var LanePainter = class {
  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  constructor(pen, at) {
    this.pen = pen, this.at = at, this.film = at.film, this.looks = cellLooks(pen.p), this.fed = /* @__PURE__ */ new Map(), this.wrong = at.film.wrongEnds(at.step);
    for (let feed of at.stage.feeds) {
      let key = `${feed[0]} ${feed[2]}`;
      this.fed.set(key, [...this.fed.get(key) ?? [], feed]);
    }
  }
  /**
   * Calls visit(cell, x) for the slots of a lane that stand at full width.
   * @param {LaneName} which
   * @param {number} number
   * @param {(cell: Cell, x: number) => void} visit
   */
  _each(which, number, visit) {
    let { at } = this;
    for (let run of this.film.lane(at.step, which, number)) {
      if (!at.places.shows(run)) continue;
      let position = at.places.firstPosition(run), [first, stop] = at.places.full(number, run[0], run[1], position);
      for (let slot = first; slot < stop; slot++)
        visit(this.film.cellOf(run, slot), at.x(number, slot, position + slot - run[0]));
    }
  }
  /**
   * Calls visit(kind, x, width, run) for the runs of a lane.
   * @param {LaneName} which
   * @param {number} number
   * @param {number} slide
   * @param {(kind: string, x: number, w: number, run: LaneRun) => void} visit
   */
  _runs(which, number, slide, visit) {
    let { at } = this, { kinds } = this.film.json;
    for (let run of this.film.lane(at.step, which, number)) {
      if (!at.places.shows(run)) continue;
      let position = at.places.firstPosition(run), x = at.x(number, run[0], position), w = at.x(number, run[1], position + run[1] - run[0]) - x;
      w > 0 && visit(kinds[run[2]], x + slide, w, run);
    }
  }
  /**
   * All rows; slides: px by which each is away from where it belongs. One kind of thing after the
   * other, since a context that has to change its font less is faster.
   * @param {number[]} slides
   */
  paint(slides) {
    let { at, pen } = this, cells = [];
    at.lanes.forEach((lane, number) => {
      let slide = slides[number];
      !at.signs || lane.tokens.h < 10 ? this._strip(number, lane, slide) : (drawFolds(pen, at, number, slide), this._each(
        "tokens",
        number,
        (cell, x) => cells.push([lane, this._judged(cell, number), x + slide])
      ));
    });
    let hangs = ([lane, { kind }]) => lane.notes !== null && HUNG.has(kind), hung = cells.filter(hangs), standing = hung.length ? cells.filter((cell) => !hangs(cell)) : cells;
    for (let cell of standing) this._box(...cell);
    for (let cell of standing) this._token(...cell);
    for (let [lane, cell, x] of hung) drawHung(pen, at, lane, cell, x);
    for (let cell of cells) this._below(...cell);
    for (let [number, slide] of slides.entries())
      this._bar("target", number, slide, this.pen.p.target), this._bar("draft", number, slide, this.pen.p.draft);
  }
  /**
   * @param {Cell} cell
   * @param {number} number
   */
  _judged(cell, number) {
    return cell.kind === "bonus_now" && this.wrong.has(number) && (cell.kind = "wrong_now"), cell;
  }
  /**
   * @param {RowLanes} lane
   * @param {Cell} cell
   * @param {number} x
   */
  _below(lane, cell, x) {
    lane.positions && cell.position >= 0 && drawPosition(this.pen, this.at, lane.positions, cell, x), lane.positions && cell.kind === "unverified" && this._sign(cell, x + this.at.cell / 2, lane.positions.y + lane.positions.h / 2), COMMITTED.has(cell.kind) && this.at.view.differs?.(cell.request, cell.index) && this._differs(lane, x);
  }
  /**
   * A run at a time, for cells too small for signs.
   * @param {number} number
   * @param {RowLanes} lane
   * @param {number} slide
   */
  _strip(number, lane, slide) {
    this._runs("tokens", number, slide, (kind, x, w) => {
      if (kind === "empty" || kind === "padding") return;
      let shown = kind === "bonus_now" && this.wrong.has(number) ? "wrong_now" : kind;
      drawStrip(this.pen, this.looks[shown], shown, { ...lane.tokens, x, w }, this.at.cell);
    });
  }
  /**
   * @param {RowLanes} at
   * @param {Cell} at
   * @param {number} x
   */
  _box({ tokens: { y, h } }, { kind, origin }, x) {
    let { pen, at } = this;
    kind !== "padding" && (kind === "empty" ? pen.rect(x + 1, y + h - 1, at.cell - 2, 1, { fill: pen.p.faint }) : pen.rect(x + 1, y, at.cell - 2, h, {
      ...this.looks[kind === "held" ? origin || "p" : kind],
      radius: 4
    }));
  }
  /**
   * @param {RowLanes} lane
   * @param {Cell} cell
   * @param {number} x
   */
  _token(lane, cell, x) {
    let { pen, at } = this, { p } = pen, middle = x + at.cell / 2, y = lane.tokens.y + lane.tokens.h / 2;
    if (cell.kind === "empty") return;
    if (cell.kind === "padding")
      return pen.text("\xB7", middle, y, { size: 11, fill: p.muted, align: "center" });
    if (!at.texts) return this._sign(cell, middle, y);
    let fill = PALE.has(cell.kind) ? p.muted : p.ink, size = lane.open ? at.large ? 12 : 10.5 : 9;
    pen.text(this.film.text(cell.token), middle, y, {
      size,
      mono: !0,
      align: "center",
      fill,
      max: at.cell - 5
    });
  }
  /**
   * @param {Cell} cell
   * @param {number} x
   * @param {number} y
   */
  _sign(cell, x, y) {
    let { p } = this.pen, sign = cell.kind === "held" ? "" : SIGNS[cell.kind] ?? "", fill = signFills(p)[cell.kind] ?? p.muted, string = sign || ([...this.film.text(cell.token)][0] ?? "");
    this.pen.text(string, x, y, {
      size: 10,
      fill,
      align: "center",
      mono: !sign,
      weight: sign ? 700 : 400
    });
  }
  /**
   * @param {RowLanes} lane
   * @param {number} x
   */
  _differs(lane, x) {
    let bottom = lane.tokens.y + lane.tokens.h;
    for (let up of [1, 4])
      this.pen.rect(x + 2, bottom - up, this.at.cell - 4, 1.5, { fill: this.pen.p.red });
  }
  /**
   * K/V of one model, slot by slot: full where it counts, hatched where it is stale, outlined where
   * there is none.
   * @param {LaneName} which
   * @param {number} number
   * @param {number} slide
   * @param {string} colour
   */
  _bar(which, number, slide, colour) {
    let { p } = this.pen, lane = this.at.lanes[number][which], { request: own } = this.at.rows[number];
    if (!lane.h) return;
    let looks = barLooks(p, colour, lane.h);
    this._runs(which, number, slide, (kind, x, w, [, , , index, , request]) => {
      let under = kind === "pending" && liesUnder(index, request, own), none = lane.h > 3 ? { stroke: p.faint } : null, look = looks[under ? "stale" : kind] ?? none;
      look && this.pen.rect(
        kind === "held" || w < 2 ? x : x + 0.5,
        lane.y,
        kind === "held" || w < 2 ? w : w - 1,
        lane.h,
        look
      );
    }), which === "draft" && drawGuesses(this.pen, this.at, number, slide), this._written(which, number, slide, lane);
  }
  /**
   * Slots that a forward of this phase has written.
   * @param {LaneName} which
   * @param {number} number
   * @param {number} slide
   * @param {Band} lane
   */
  _written(which, number, slide, lane) {
    if (!(lane.h < 3))
      for (let [, , , slot, count] of this.fed.get(`${which === "target" ? 0 : 1} ${number}`) ?? []) {
        let x = this.at.x(number, slot), w = this.at.x(number, slot + count) - x;
        this.pen.rect(x + slide, lane.y - 1, Math.max(w, 2), lane.h + 2, {
          stroke: this.pen.p.ink,
          radius: 2
        });
      }
  }
};

// src/panels/marks.js
var MarkPainter = class {
  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  constructor(pen, at) {
    this.pen = pen, this.at = at, this.stays = at.film.phaseName(at.step) === "accept", this.shifts = this._shifts();
  }
  /**
   * By row: how many slots to the right its K/V moved, from which other row it came (null: none),
   * and how many slots the target's cache copied.
   */
  _shifts() {
    let found = /* @__PURE__ */ new Map();
    for (let [model, , from, fromSlot, to, toSlot, length] of this.at.stage.moves) {
      if (to < 0 || this.stays && from === to) continue;
      let entry = found.get(to) ?? { by: 0, from: null, slots: 0 };
      from !== to ? entry.from = from : model === 0 && (entry.by = toSlot - fromSlot), model === 0 && (entry.slots += length), found.set(to, entry);
    }
    return found;
  }
  /**
   * px to the right of its place at which each row is drawn; away: 1 before it moves, 0 once it is
   * there.
   * @param {number} away
   */
  slides(away) {
    let { at } = this;
    return at.rows.map(
      (_, number) => -(this.shifts.get(number)?.by ?? 0) * at.cell * away * (1 - at.view.turn)
    );
  }
  /**
   * Under a row's lanes: how its K/V moved.
   * @param {RowEntry} row
   * @param {number} number
   */
  motion(row, number) {
    let { pen, at } = this, { notes } = at.lanes[number], shift = this.shifts.get(number);
    if (!shift || !notes) return;
    let y = notes.y + notes.h / 2, look = { size: 10, fill: pen.p.blue };
    if (shift.from !== null) {
      let origin = shift.from < 0 ? `cache row ${-1 - shift.from}` : `row ${shift.from}`;
      pen.text(`\u21E1 K/V copied here from ${origin}: ${shift.slots} slots`, GUTTER, y, look);
      return;
    }
    if (!shift.by) return;
    let gained = at.film.judged(at.step) ? row.gained : 0, head = at.x(number, at.begin(row) + 1 + gained), end = Math.min(Math.max(head, GUTTER + 30), at.right), tail = Math.min(Math.max(end - shift.by * at.cell, GUTTER + 4), at.right - 4);
    pen.line(tail, y, end, y, { stroke: pen.p.blue, width: 1.75, arrow: !0 });
    let words = `moved ${Math.abs(shift.by)} ${shift.by > 0 ? "right" : "left"}`;
    pen.text(words, Math.min(tail, end) - 8, y, { ...look, align: "right" });
  }
  /**
   * Under a row's last token: the draft in whose slot it stands, which was rejected for it.
   * @param {RowEntry} row
   * @param {number} number
   */
  rejection(row, number) {
    let { pen, at } = this, { notes } = at.lanes[number], { film } = at, slot = row.end ?? row.pending + row.gained, x = at.x(number, slot), rejects = film.judged(at.step) && row.gained > row.accepted;
    if (!notes || !rejects || x < GUTTER || x >= at.right || film.phase(at.step) > 3 && (this.shifts.has(number) || row.pending_after !== slot)) return;
    let token = film.rejectedDraft(row);
    token === null || !standsAt(at, number, slot) || drawHung(pen, at, at.lanes[number], hungCell(token), x);
  }
  /** Over all rows. */
  paint() {
    let { at } = this;
    at.signs && this._begin(), at.film.violationsAt(at.step).forEach((each) => this._violation(each)), this._pointed();
  }
  _begin() {
    let { pen, at } = this, xs = at.rows.map((row, number) => at.x(number, at.begin(row) + 1)), look = { stroke: pen.p.blue, dash: [2, 3] };
    xs.forEach((x, number) => {
      let { y: y2, draft } = at.lanes[number];
      x >= GUTTER && x <= at.right && pen.line(x, y2, x, draft.y + draft.h, look);
    });
    let y = at.top - 9;
    at.rows.length && xs[0] < at.right - 60 && pen.text("drafts \u2192", xs[0] + 3, y, { size: 10, fill: pen.p.blue });
  }
  /** @param {ViolationEntry} each */
  _violation({ row, slot, rule, model }) {
    let { pen, at } = this, lane = at.lanes[row];
    if (!lane) return;
    let { tokens, positions, target, draft } = lane, { red } = pen.p, look = { size: lane.open ? 11 : 8, fill: red, align: "center" };
    if (pen.text("\u25B2", GUTTER - 8, tokens.y + tokens.h / 2, look), slot == null) return;
    let x = at.x(row, slot), w = Math.max(at.x(row, slot + 1) - x, 3);
    if (x < GUTTER - at.cell || x > at.right) return;
    let ofRule = { positions: positions ?? tokens, kv: target }[rule] ?? tokens, { y, h } = model === 1 ? draft : ofRule, box = { stroke: red, width: 2, radius: 3 };
    pen.rect(Math.max(x, GUTTER), y - 1, w, h + 2, box);
  }
  _pointed() {
    let { pen, at } = this, spot = at.view.hover;
    if (!spot || spot.row === null || spot.slot === null || spot.slot === void 0) return;
    let lane = at.lanes[spot.row];
    if (!lane) return;
    let x = at.x(spot.row, spot.slot);
    if (x < GUTTER || x + 1 > at.right) return;
    let { blue } = pen.p, w = at.x(spot.row, spot.slot + 1) - x;
    at.shared && pen.rect(x + w / 2 - 0.5, at.top - 2, 1, at.bottom - at.top, { fill: blue });
    let height = lane.draft.y + lane.draft.h - lane.y + 1, box = { stroke: blue, width: 2, radius: 4 };
    pen.rect(x, lane.y + 1, Math.max(w, 3), height, box);
  }
};
function standsAt(at, number, slot) {
  let kind = at.film.cell(at.step, "tokens", number, slot)?.kind;
  return kind === "bonus_now" || kind === "wrong_now";
}
function hungCell(token) {
  return { kind: "rejected_now", index: -1, position: -1, request: -1, token, origin: "" };
}

// src/panels/branch.js
function drawBranch(pen, at) {
  let { film, step, view } = at, row = view.hover?.row ?? -1, entry = at.rows[row], draft = entry && film.phase(step) ? draftAt(film, step, row, view.hover) : -1;
  if (draft < 0) return;
  let slots = slotsOf(film, step, row), { tokens } = at.lanes[row], begin = at.begin(entry);
  for (let slot of [begin, ...lineOf(entry, draft).map((each) => slots[each])]) {
    if (slot === null) continue;
    let x = at.x(row, slot);
    if (x < GUTTER || x + 1 > at.right) continue;
    let look = { stroke: pen.p.blue, width: 2, radius: 4 };
    pen.rect(x + 0.5, tokens.y - 1.5, Math.max(at.cell - 1, 2), tokens.h + 3, look);
  }
}
function drawCompaction(pen, at, row) {
  let { arrows } = at.lanes[row];
  if (!arrows || at.film.phaseName(at.step) !== "accept") return;
  let moves = [...compacted(at.film, at.step, row)], look = { stroke: pen.p.green, width: 1.75 }, deep = arrows.h - 2;
  moves.forEach(([from, to], n) => {
    let [tail, head] = [at.x(row, from) + at.cell / 2, at.x(row, to) + at.cell / 2];
    if (Math.min(tail, head) < GUTTER || Math.max(tail, head) > at.right) return;
    let y = arrows.y + deep * (moves.length > 1 && n % 2 ? 0.55 : 1), apart = Math.min(3, at.cell / 6);
    pen.line(tail + apart, arrows.y, tail + apart, y, look), pen.line(tail + apart, y, head - apart, y, look), pen.line(head - apart, y, head - apart, arrows.y - 1, { ...look, arrow: !0 });
  });
}

// src/panels/reading.js
var UNREAD = /* @__PURE__ */ new Set(["stale", "rejected_now", "discarded_now", "unreached_now", "unverified"]);
function drawReading(pen, at, number) {
  let { p } = pen, y = at.readingTop + 13, looks = cellLooks(p), { words, more } = lastWords(pen, at, number);
  pen.text(`row ${number} reads`, 12, y, { size: 10.5, fill: p.muted });
  let x = more ? at.width - RIGHT - words.reduce((sum, { w }) => sum + w, 0) : GUTTER;
  more && pen.text("\u2026", x - 4, y, { size: 12, fill: p.muted, align: "right" });
  for (let { cell, text, w } of words) {
    let look = looks[cell.kind === "held" ? cell.origin || "p" : cell.kind];
    cell.kind !== "held" && pen.rect(x, y - 10, w - 1, 20, {
      fill: look.fill,
      stroke: look.stroke,
      dash: look.dash,
      radius: 3
    }), pen.text(text, x + 1, y, { size: 12, mono: !0, fill: cell.origin === "p" ? p.muted : p.ink }), x += w;
  }
}
function lastWords(pen, at, number) {
  let look = { size: 12, mono: !0 }, words = [], room = at.width - RIGHT - GUTTER - 14;
  for (let cell of tokensFromTheEnd(at, number)) {
    let text = pen.cut(at.film.text(cell.token), LONGEST, look), w = pen.measure(text, look) + 3;
    if (w > room) return { words: words.reverse(), more: !0 };
    room -= w, words.push({ cell, text, w });
  }
  return { words: words.reverse(), more: !1 };
}
function* tokensFromTheEnd(at, number) {
  let wrong = at.film.wrongEnds(at.step).has(number), unread = offBranch(at, number);
  for (let run of [...at.film.lane(at.step, "tokens", number)].reverse())
    for (let slot = run[1] - 1; slot >= run[0]; slot--) {
      let cell = at.film.cellOf(run, slot);
      wrong && cell.kind === "bonus_now" && (cell.kind = "wrong_now"), cell.token >= 0 && !UNREAD.has(cell.kind) && !unread.has(slot) && (yield cell);
    }
}
function offBranch({ film, step, rows, view }, number) {
  let entry = rows[number];
  if (!entry || !branches(entry) || film.judged(step)) return /* @__PURE__ */ new Set();
  let slots = slotsOf(film, step, number), draft = draftAt(film, step, number, view.hover), line = draft < 0 ? [] : lineOf(entry, draft);
  return new Set(slots.filter((_, j) => !line.includes(j)));
}

// src/panels/slotwords.js
function slotState({ film, step }, row, cell) {
  let wrong = cell.kind === "bonus_now" && film.wrongEnds(step).has(row);
  return film.wordOf(wrong ? { ...cell, kind: "wrong_now" } : cell);
}
function slotKv({ film, step }, model, row, slot, cell) {
  let held = film.cell(step, model, row, slot);
  return !held || held.kind === "empty" ? "empty" : held.kind === "pending" ? liesUnder(held.index, held.request, cell.request) ? "stale" : "empty" : held.kind === "held" ? held.index === cell.index ? "valid" : `of index ${held.index}` : held.token < 0 && held.index >= 0 ? held.kind === "drafted" ? "of a mask entry" : `${held.kind}, of a mask entry` : held.kind === "drafted" ? "of a draft" : held.kind;
}
function slotHint(view, row, slot, cell) {
  let { film, step } = view;
  if (cell.kind === "unverified") return unverifiedHint(view, row, slot, cell);
  let token = cell.token >= 0 ? `\u201C${film.text(cell.token)}\u201D \xB7 ` : "", what = slotState(view, row, cell) + replaced(film, step, row, cell), drift = film.checked && driftsAway(cell) ? " (drift!)" : "", position = cell.position < 0 ? "not known" : cell.position, index = `index ${cell.index}, position ${position}${drift}`, target = `target K/V ${slotKv(view, "target", row, slot, cell)}`, place = `${token}row ${row}, slot ${slot}: ${what}`, kv = [target, ...headKv(view, row, slot, cell)].join(", ");
  return [place, ...cell.index < 0 ? [] : [index], kv].join(" \xB7 ");
}
function headKv(view, row, slot, cell) {
  let { film, step } = view;
  if (keepsNothing(film)) return [];
  let read = sourceWords(film, step, row, slot), words = `${drafterName(film)} K/V ${slotKv(view, "draft", row, slot, cell)}`;
  return [read ? `${words}: ${read}` : words];
}
function unverifiedHint({ film, step }, row, slot, cell) {
  let entry = film.rows(step)[row], number = slot - entry.pending - 1, why = leftOutWords(film, step, row, number), place = `\u201C${film.text(cell.token)}\u201D \xB7 row ${row}, slot ${slot}: draft ${number + 1}`, read = sourceWords(film, step, row, slot), head = read ? ` \xB7 ${drafterName(film)} K/V: ${read}` : "";
  return `${place}, ${why} \xB7 index ${cell.index}${head}`;
}
function replaced(film, step, row, cell) {
  let draft = cell.kind === "bonus_now" ? film.rejectedDraft(film.rows(step)[row]) : null;
  return draft === null ? "" : `, in place of the rejected draft \u201C${film.text(draft)}\u201D`;
}

// src/panels/stage.js
var LISTED2 = 400, Stage = class {
  static id = "stage";
  /** @param {View} view */
  constructor(view) {
    this.view = view, this._layouts = new Kept(5);
  }
  key() {
    let { step, row, zoom, pan, tall, turn, progress, hover } = this.view;
    return [
      step,
      row,
      zoom,
      pan,
      tall,
      turn,
      progress,
      hover?.row,
      hover?.slot,
      hover?.draft
    ].join();
  }
  title() {
    let { film, step } = this.view, rows = counted(film.rows(step).length, "row"), slots = counted(film.stage(step).width, "slot"), models = keepsNothing(film) ? "the target" : `target and ${drafterName(film)}`;
    return `Batch, ${rows} \xD7 ${slots} \xB7 tokens, position ids, K/V of ${models}`;
  }
  heading() {
    let { film, step } = this.view;
    return `Batch \xB7 ${counted(film.rows(step).length, "row")} \xD7 ${counted(film.stage(step).width, "slot")}`;
  }
  empty() {
    return this.view.film.rows(this.view.step).length === 0;
  }
  /** @param {number} width */
  height(width) {
    return this._layout(width).height;
  }
  /** @param {number} width */
  _layout(width) {
    let { step, row, zoom, pan, tall, turn } = this.view;
    return this._width = width, this._layouts.get(
      [step, row, zoom, pan, tall, turn, width].join(),
      () => new StageLayout(this.view, width)
    );
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    let at = this._layout(width), frame = new FramePainter(pen, at), marks = new MarkPainter(pen, at), slides = marks.slides(1 - (this.view.progress ?? 1));
    frame.paint(), pen.clip(
      GUTTER - 1,
      at.top,
      at.right - GUTTER + RIGHT / 2,
      at.bottom - at.top,
      () => new LanePainter(pen, at).paint(slides)
    ), at.rows.forEach((row, number) => {
      frame.label(row, number), marks.motion(row, number), drawCompaction(pen, at, number), marks.rejection(row, number);
    }), drawCuts(pen, at), drawBranch(pen, at), marks.paint(), drawCapacity(pen, at), drawReading(pen, at, this.view.row);
  }
  // -- asked by the shell
  /** How many rows of the run are open, and px of all that is not rows. */
  get openRows() {
    return this.view.film.mostRows > 8 ? 1 : this.view.film.mostRows;
  }
  /** @param {number} width */
  around(width) {
    let at = this._layout(width), { film } = this.view, compact = film.mostRows > 24 ? 13 : 25, folded = film.mostRows > 8 ? (film.mostRows - 1) * compact : 0;
    return AXIS + READING + at.strip.height + at.arrows * this.openRows + folded;
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    let at = this._layout(width), row = at.rowAt(y);
    if (row < 0) return capacityHit(at, x, y);
    if (x > at.right) return null;
    if (x < GUTTER) {
      let words = at.stage.words_of?.[row] ?? `request ${at.rows[row].request}`;
      return { row, slot: null, index: null, hint: `row ${row}: ${words}` };
    }
    let slot = at.slotAt(row, x), cell = at.film.cell(at.step, "tokens", row, slot);
    if (!cell) return null;
    let index = cell.index < 0 ? null : cell.index;
    return { row, slot, index, hint: slotHint(this.view, row, slot, cell) };
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  click(x, y, width) {
    let at = this._layout(width), row = at.rowAt(y), share = row < 0 ? capacityHit(at, x, y) : null;
    (row >= 0 || share?.row != null) && this.view.pick(share?.row ?? row);
  }
  /** @param {number} direction */
  zoomBy(direction) {
    let automatic = this._width ? this._layout(this._width).cell : USUAL, now = this.view.zoom ?? ZOOMS.findLastIndex((each) => each <= automatic);
    this.view.zoom = Math.min(Math.max(now + direction, 0), ZOOMS.length - 1);
  }
  /** @param {number} slots */
  panBy(slots) {
    let at = this._width ? this._layout(this._width) : null, most = at ? at.last - at.count : 0;
    this.view.pan = Math.min(Math.max((this.view.pan ?? 0) - slots, 0), most);
  }
  reset() {
    Object.assign(this.view, { zoom: null, pan: 0 });
  }
  describe() {
    let { film, step, row } = this.view, rows = film.rows(step), own = rows[row];
    if (!own) return "No row in this round.";
    let stage = film.stage(step), lengths = `${Math.min(...stage.lengths)} to ${Math.max(...stage.lengths)}`;
    return [
      `${rows.length} rows of ${lengths} committed tokens in ${stage.width} slots.`,
      `Row ${row}: request ${own.request}, ${stage.lengths[row]} tokens.`,
      (stage.words_of?.[row] ?? "") + capacityWords(this.view)
    ].join(" ");
  }
  table() {
    let { film, step, row } = this.view, end = film.lane(step, "tokens", row).at(-1)?.[1] ?? 0, width = Math.max(film.stage(step).width, end), reads = film.json.head !== void 0 && !keepsNothing(film), number = (value) => value < 0 ? "" : value, rows = [];
    for (let slot = Math.max(0, width - LISTED2); slot < width; slot++) {
      let cell = film.cell(step, "tokens", row, slot);
      cell && rows.push([
        slot,
        film.text(cell.token),
        slotState(this.view, row, cell),
        number(cell.index),
        number(cell.position),
        slotKv(this.view, "target", row, slot, cell),
        ...keepsNothing(film) ? [] : [slotKv(this.view, "draft", row, slot, cell)],
        ...reads ? [sourceWords(film, step, row, slot)] : []
      ]);
    }
    let head = ["slot", "token", "state", "index", "position", "target K/V"];
    return keepsNothing(film) || head.push(`${drafterName(film)} K/V`), reads && head.push(`what the ${drafterName(film)} read`), { caption: `Row ${row}, slot by slot`, head, rows };
  }
};

// src/panels/time.js
var TIME = { top: 18, line: 23, bar: 13, name: 104, number: 60, share: 50 }, TimePanel = class {
  static id = "time";
  /** @param {View} view */
  constructor(view) {
    this.view = view;
  }
  key() {
    return `${this.view.step}`;
  }
  empty() {
    return !this.view.film.steps;
  }
  get _round() {
    return this.view.film.round(this.view.step);
  }
  get _ms() {
    return this.view.film.scene(this.view.step).ms;
  }
  // Of this round, and of all rounds up to it.
  get _now() {
    return this.view.film.tally.totals(this._round, this._round + 1);
  }
  get _soFar() {
    return this.view.film.tally.totals(0, this._round + 1);
  }
  // Of a log without times, there is one sentence.
  get _untold() {
    return this.view.film.json.gaps?.time ?? null;
  }
  title() {
    return this._untold ? `Time \xB7 round ${this._round}` : `Time \xB7 round ${this._round}: ${milliseconds(sumOf(this._ms))}`;
  }
  _shares() {
    let { ms, all } = this._soFar;
    return ms.map((value) => percent(value / Math.max(all, 1e-9)));
  }
  _moved() {
    let now = this._now.bytes, so = this._soFar, rounds = this._round ? `Rounds 0 to ${this._round}` : "This round", words = this._untold ?? `${rounds}: ${milliseconds(so.all)}.`, { gaps } = this.view.film.json;
    if (gaps?.bytes) return `${words} ${gaps.bytes}`;
    if (!this.view.film.tally.copies) return `${words} No K/V is copied in this run.`;
    let here = now ? bytesOf(now) : "none", before = so.bytes ? bytesOf(so.bytes) : "none";
    return `${words} K/V copied: ${here} in this round, ${before} so far.`;
  }
  describe() {
    let { film, step } = this.view;
    if (this._untold) return `${this.title()}. ${this._moved()}`;
    let parts = this._ms.map(
      (value, phase) => `${film.json.phases[phase]} ${milliseconds(value)}`
    );
    return `${this.title()}. ${parts.join(", ")}. At ${film.phaseName(step)}. ${this._moved()}`;
  }
  table() {
    let { film } = this.view;
    if (this._untold) return { caption: this._moved(), head: [], rows: [] };
    let shares = this._shares(), so = this._soFar.ms, rows = film.json.phases.map((name, phase) => [
      name,
      milliseconds(this._ms[phase]),
      milliseconds(so[phase]),
      shares[phase]
    ]);
    rows.push(["all", milliseconds(sumOf(this._ms)), milliseconds(sumOf(so)), percent(1)]);
    let head = ["phase", "this round", `rounds 0 to ${this._round}`, "share of these"];
    return { caption: this._moved(), head, rows };
  }
  /** @param {number} width */
  _places(width) {
    let w = width - 2 * PAD, words = wrapWords(this._moved(), w, { size: 12 }), foot = this._untold ? 4 : TIME.top + 5 * TIME.line + 12;
    return { x: PAD, y: TIME.top, w, words, foot };
  }
  /** @param {number} width */
  height(width) {
    let { words, foot } = this._places(width);
    return foot + words.length * 17 + 2;
  }
  /** @param {Palette} at */
  colours({ grey, draft, target, green, orange }) {
    return [grey, draft, target, green, orange];
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    let { words, foot, ...at } = this._places(width), { p } = pen;
    if (words.forEach((line, n) => pen.text(line, PAD, foot + 6 + n * 17, { size: 12, fill: p.ink })), this._untold) return;
    let head = { size: 11, fill: p.muted, align: "right" };
    pen.text("this round", at.x + at.w - TIME.share, 8, head), pen.text("so far", at.x + at.w, 8, head), this.view.film.json.phases.forEach((_, phase) => this._phase(pen, at, phase));
  }
  /**
   * @param {Pen} pen
   * @param {{ x: number, y: number, w: number }} at
   * @param {number} phase
   */
  _phase(pen, { x, y, w }, phase) {
    let { film, step } = this.view, { p } = pen, here = film.phase(step) === phase, middle = y + (phase + 0.5) * TIME.line, room = w - TIME.name - TIME.number - TIME.share, value = this._ms[phase], look = { size: 12, weight: here ? 700 : 400, fill: here ? p.blue : p.ink };
    here && pen.text("\u25B8", x, middle, { size: 12, fill: p.blue }), pen.text(film.json.phases[phase], x + 12, middle, look), pen.rect(x + TIME.name, middle - TIME.bar / 2, room, TIME.bar, { fill: p.greySoft, radius: 3 });
    let long = Math.max(room * value / Math.max(...this._ms, 1e-9), 1.5);
    pen.rect(x + TIME.name, middle - TIME.bar / 2, long, TIME.bar, {
      fill: this.colours(p)[phase],
      radius: Math.min(3, long / 2)
    }), here && pen.rect(x + TIME.name - 2, middle - TIME.bar / 2 - 2, room + 4, TIME.bar + 4, {
      stroke: p.blue,
      width: 1.5,
      radius: 4
    }), pen.text(milliseconds(value), x + w - TIME.share, middle, {
      ...look,
      size: 11,
      align: "right"
    }), pen.text(this._shares()[phase], x + w, middle, { size: 11, fill: p.muted, align: "right" });
  }
  /**
   * The phase under a point, -1 for none.
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  _under(x, y, width) {
    let phase = Math.floor((y - TIME.top) / TIME.line);
    return x >= PAD && x < width - PAD && phase >= 0 && phase < 5 && !this._untold ? phase : -1;
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    let phase = this._under(x, y, width);
    return phase < 0 ? null : { row: null, slot: null, index: null, hint: `${this.view.film.json.phases[phase]}: ${milliseconds(this._ms[phase])} in this round` };
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  click(x, y, width) {
    let phase = this._under(x, y, width), { film, step, go } = this.view;
    phase >= 0 && go(step - film.phase(step) + phase);
  }
};

// src/film/treecards.js
function treeCards(film, step, row) {
  let entry = film.rows(step)[row], stop = film.phase(step) ? entry.verified : entry.drafted;
  return Array.from({ length: entry.drafted + 1 }, (_, n) => n === stop ? ownCard(film, step, entry, n) : nodeCard(film, step, row, n > stop ? n - 1 : n, n > stop));
}
function nameOf(j) {
  return j < 0 ? "the pending token" : `d${j + 1}`;
}
function nodeCard(film, step, row, j, leftOut2) {
  let entry = film.rows(step)[row], phase = film.phase(step), drafted = phase >= 1, read = phase >= 2 && !leftOut2, card = {
    name: nameOf(j),
    number: j,
    index: entry.length + depthOf(entry, j) - 1,
    last: !1,
    draft: drafted ? entry.drafts[j] : null,
    q: drafted ? entry.q[j] : null,
    p: read ? entry.p[j] : null,
    draftChoices: drafted ? entry.draft[j] : [],
    targetChoices: read ? entry.target[parentOf(entry, j) + 1] ?? [] : [],
    emitted: null,
    own: !1
  };
  if (leftOut2) return { ...card, fate: "unverified", words: leftOutWords(film, step, row, j) };
  if (!film.judged(step)) return { ...card, fate: "waiting", words: waitingWords(phase) };
  let fate = film.json.fates[entry.fates[j]], place = entry.path?.indexOf(j) ?? -1, emitted = place >= 0 && place < entry.gained ? entry.emitted[place] : null;
  return { ...card, fate, words: nodeWords(film, entry, j, fate), emitted };
}
function waitingWords(phase) {
  return phase === 2 ? "not compared yet" : phase === 1 ? "the target has not read it" : "not drafted yet";
}
function ownCard(film, step, entry, n) {
  let judged = film.judged(step), { accepted, gained } = entry, fate = judged ? film.json.fates[entry.fates[n]] : "waiting", emitted = judged && gained > accepted ? entry.emitted[accepted] : null;
  return {
    name: entry.verified ? "bonus" : "next",
    number: null,
    index: judged ? entry.length + accepted : null,
    last: !0,
    draft: null,
    q: null,
    p: null,
    draftChoices: [],
    targetChoices: judged ? entry.target[lastOf(entry) + 1] ?? [] : [],
    fate,
    words: judged ? ownWords(film, entry, fate) : "comes behind the last accepted draft",
    emitted,
    own: emitted !== null
  };
}
function nodeWords(film, entry, j, fate) {
  if (fate === "accepted") return acceptedWords(film);
  if (fate === "rejected") return rejectedWords(film, entry, j);
  if (fate === "kept") return "agreed; kept as the row's last of this round";
  if (fate === "discarded") return "agreed, but thrown away: another row stopped earlier";
  if (fate === "ended") return `${isAccepted(entry, j) ? "agreed, but " : ""}the row ended`;
  if (fate === "wrong") {
    let choice = entry.target[parentOf(entry, j) + 1][0][0];
    return `accepted, though the target says ${quoted(film.text(choice))}`;
  }
  let [stopped] = lineOf(entry, j).filter((draft) => !isAccepted(entry, draft));
  return stopped === j ? "cut off: another row stopped earlier" : `not reached: it follows ${nameOf(stopped)}`;
}
function acceptedWords(film) {
  let { sampling } = film.json.meta;
  return film.knowsChoices ? sampling ? sampling.coupling === "gumbel" ? "accepted: same choice under the same noise" : "accepted" : "accepted: the target's first choice" : "accepted";
}
function rejectedWords(film, entry, j) {
  let parent = parentOf(entry, j), taken = entry.path?.find((draft) => parentOf(entry, draft) === parent), token = taken === void 0 ? entry.emitted[entry.accepted] : entry.drafts[taken], word = quoted(film.text(token)), name = taken === void 0 ? word : `${word} (${nameOf(taken)})`;
  if (!film.knowsChoices) return `rejected: ${name} is emitted`;
  let { sampling } = film.json.meta;
  return sampling ? sampling.coupling === "gumbel" ? `rejected: under the same noise the target draws ${name}` : `rejected: the target takes ${name}` : `rejected: the target says ${name}`;
}
function ownWords(film, entry, fate) {
  let behind = nameOf(lastOf(entry));
  if (fate === "ended") return "the row ended";
  if (fate === "unreached") return "cut off: another row stopped earlier";
  let emitted = quoted(film.text(entry.emitted[entry.accepted]));
  if (fate === "wrong") {
    let choice = entry.target[lastOf(entry) + 1][0][0];
    return `the target says ${quoted(film.text(choice))}, yet ${emitted} is emitted`;
  }
  if (!film.knowsChoices) return `${emitted} is emitted after ${behind}`;
  let { sampling } = film.json.meta;
  return sampling ? `drawn by the target after ${behind}` : `the target's first choice after ${behind}`;
}

// src/film/cards.js
var MARKS = {
  waiting: { sign: "?" },
  accepted: { sign: "\u2713" },
  rejected: { sign: "\u2717" },
  bonus: { sign: "\u25CF" },
  kept: { sign: "\u2713" },
  discarded: { sign: "\u21BA" },
  wrong: { sign: "\u25B2" },
  ended: { sign: "\u25A0", pale: !0 },
  unreached: { sign: "\u2013", pale: !0 },
  unverified: { sign: "\u2298", pale: !0 }
};
function draftCards(film, step, row) {
  let entry = film.rows(step)[row];
  if (!entry?.gained) return [];
  if (branches(entry)) return treeCards(film, step, row);
  let stop = film.phase(step) ? entry.verified : entry.drafted;
  return Array.from(
    { length: entry.drafted + 1 },
    (_, n) => n > stop ? unverifiedCard(film, step, row, n - 1) : draftCard(film, step, entry, n, n === stop)
  );
}
function unverifiedCard(film, step, row, j) {
  let card = bareCard(film, step, film.rows(step)[row], j, !1), judged = { fate: "unverified", words: leftOutWords(film, step, row, j), emitted: null, own: !1 };
  return { ...card, p: null, targetChoices: [], ...judged };
}
function draftCard(film, step, entry, j, last) {
  let card = bareCard(film, step, entry, j, last);
  if (!film.judged(step)) {
    let words2 = waitingWords2(film.phase(step), entry, last, j);
    return { ...card, fate: "waiting", words: words2, emitted: null, own: !1 };
  }
  let fate = film.json.fates[entry.fates[j]], words = fateWords(film, entry, j, fate), emitted = j < entry.gained ? entry.emitted[j] : null, own = j === entry.accepted && emitted !== null && fate !== "accepted";
  return { ...card, fate, words, emitted, own };
}
function bareCard(film, step, entry, j, last) {
  let phase = film.phase(step), drafted = !last && phase >= 1, verified = phase >= 2;
  return {
    name: last ? j ? "bonus" : "next" : `d${j + 1}`,
    index: entry.length + j,
    last,
    draft: drafted ? entry.drafts[j] : null,
    q: drafted ? entry.q[j] : null,
    p: verified && !last ? entry.p[j] : null,
    draftChoices: drafted ? entry.draft[j] : [],
    targetChoices: verified ? entry.target[j] : []
  };
}
function waitingWords2(phase, entry, last, j) {
  return phase === 2 ? "not compared yet" : last ? j ? `comes if ${allDrafts(entry, j)} are accepted` : "not computed yet" : phase === 1 ? "the target has not read it" : "not drafted yet";
}
function allDrafts({ drafted }, j) {
  return j < drafted ? "all verified drafts" : "all drafts";
}
function fateWords(film, entry, j, fate) {
  let { accepted, discarded, verified, gained } = entry;
  return fate === "accepted" ? acceptedWords2(film, entry, j) : fate === "rejected" ? rejectedWords2(film, entry, j) : fate === "bonus" ? bonusWords(film, entry, j) : fate === "wrong" ? wrongWords(film, entry, j) : fate === "kept" ? "agreed; kept as the row's last of this round" : fate === "ended" ? `${j < accepted ? "agreed, but " : ""}the row ended: ${cause(film, entry)}` : fate === "discarded" ? `${j < verified ? "agreed, but " : ""}thrown away: another row stopped earlier` : j === verified ? `not reached: ${gained > accepted ? "a draft was rejected" : "the row ended"}` : j === accepted + discarded ? "cut off: another row stopped earlier" : "not reached";
}
function cause(film, { emitted }) {
  let eos = film.json.meta.eos_token_ids;
  return emitted.some((token) => eos.includes(token)) ? "EOS" : "its budget is spent";
}
function acceptedWords2(film, entry, j) {
  let { sampling } = film.json.meta;
  return film.knowsChoices ? sampling ? sampling.coupling === "gumbel" ? "accepted: same choice under the same noise" : sampling.coupling === "typical" ? "accepted: likely enough for the target" : `accepted with ${ratio(film, entry, j)}` : "accepted: the target's first choice" : "accepted";
}
function rejectedWords2(film, entry, j) {
  let { sampling } = film.json.meta, emitted = quoted(film.text(entry.emitted[j]));
  return film.knowsChoices ? sampling ? sampling.coupling === "gumbel" ? `rejected: under the same noise the target draws ${emitted}` : sampling.coupling === "typical" ? `rejected: too unlikely; the target draws ${emitted}` : `rejected against ${ratio(film, entry, j)}; drawn from max(p \u2212 q, 0)` : `rejected: the target says ${emitted}` : `rejected: ${emitted} is emitted`;
}
function bonusWords(film, entry, j) {
  let emitted = `${quoted(film.text(entry.emitted[j]))} is emitted`;
  return film.knowsChoices ? film.json.meta.sampling ? "drawn from the target's p" : j ? `${allDrafts(entry, j)} accepted: the target adds its own` : "the target's first choice" : j ? `${allDrafts(entry, j)} accepted: ${emitted}` : emitted;
}
function wrongWords(film, entry, j) {
  let target = `the target says ${quoted(film.text(entry.target[j][0][0]))}`;
  if (j < entry.accepted) return `accepted, though ${target}`;
  let emitted = entry.emitted[j];
  return emitted === entry.drafts[j] ? `${target}, yet the draft's own token is kept` : `${target}, yet ${quoted(film.text(emitted))} is emitted`;
}
function ratio(film, entry, j) {
  let { temperature, top_k, top_p } = (
    /** @type {any} */
    film.json.meta.sampling
  ), p = entry.p[j], q = entry.q[j] ?? 1;
  return temperature !== 1 || top_k || top_p && top_p < 1 || p === null ? "min(1, p/q), p and q warped" : `min(1, p/q) = ${chance(Math.min(1, p / q))}`;
}

// src/panels/treelayout.js
var PLAIN_FROM = 13, BARE_FROM = 25, WIDEST2 = 150, GAP = 20, TOP = 6, FOOT3 = 26, ROOT = -1, OWN = -2, TreeLayout = class {
  /**
   * @param {RowEntry} entry
   * @param {{ last: number, gained: boolean }} own the draft that the target's own token follows
   * @param {number} width
   */
  constructor(entry, own, width) {
    this.children = /* @__PURE__ */ new Map();
    let parents = entry.parents ?? entry.drafts.map((_, j) => j - 1);
    parents.forEach((parent, j) => this._add(parent, j)), own.gained && this._add(own.last, OWN), this._nodes = /* @__PURE__ */ new Map(), this.lines = 0, this.deepest = 0, this._lay(ROOT, 0), this.detail = this.lines < PLAIN_FROM ? 2 : this.lines < BARE_FROM ? 1 : 0, this.pitch = [24, 40, 56][this.detail];
    let columns = this.deepest + 1, room = width - 2 * PAD;
    this.column = Math.min(room / columns, WIDEST2 + GAP), this.w = this.column - GAP, this.stacked = this.detail === 2 && this.w < 92, this.stacked && (this.pitch += 12), this.height = TOP + this.lines * this.pitch + FOOT3, this.words = this.height - FOOT3 / 2, this.places = [...this._nodes].map(([number, { depth, line }]) => ({
      number,
      parent: number === OWN ? own.last : number === ROOT ? ROOT : parents[number],
      x: PAD + depth * this.column,
      y: TOP + (line + 0.5) * this.pitch - [0, -6, this.stacked ? 6 : 0][this.detail],
      own: number === OWN
    }));
  }
  /**
   * @param {number} parent
   * @param {number} child
   */
  _add(parent, child) {
    this.children.set(parent, [...this.children.get(parent) ?? [], child]);
  }
  /**
   * A node without children takes a line; any other stands in the middle of its children.
   * @param {number} number
   * @param {number} depth
   * @returns {number}
   */
  _lay(number, depth) {
    let lines2 = (this.children.get(number) ?? []).map((child) => this._lay(child, depth + 1)), line = lines2.length ? (lines2[0] + lines2[lines2.length - 1]) / 2 : this.lines++;
    return this._nodes.set(number, { depth, line }), this.deepest = Math.max(this.deepest, depth), line;
  }
  /** @param {number} number */
  place(number) {
    return this.places.find((each) => each.number === number) ?? null;
  }
  /**
   * The node at a point, null beside all of them.
   * @param {number} x
   * @param {number} y
   */
  at(x, y) {
    let holds = (at) => x >= at.x && x < at.x + this.w && Math.abs(y - at.y) < Math.min(this.pitch / 2, 30);
    return this.places.find(holds) ?? null;
  }
};

// src/panels/treepaint.js
var CHIP = 20, TreePainter = class {
  /**
   * @param {Pen} pen
   * @param {View} view
   * @param {TreeLayout} at
   * @param {{ nodes: TreeNode[], cards: CardData[], lit: number[] }} tree
   */
  constructor(pen, view, at, { nodes, cards, lit }) {
    this.pen = pen, this.p = pen.p, this.view = view, this.at = at, this.nodes = nodes, this.cards = cards, this.lit = new Set(lit);
  }
  paint() {
    let own = this.cards.find((card) => card.own), shown = this.at.places.filter(
      (each) => each.number === ROOT || (each.own ? own !== void 0 : this.nodes.length > 0)
    ), ranked = shown.filter((each) => each.number !== ROOT).map((each) => (
      /** @type {const} */
      [this._edge(each), each]
    ));
    ranked.sort(([one], [other]) => (one.width ?? 1) - (other.width ?? 1));
    for (let [look, place] of ranked) this._line(place, look);
    for (let place of shown) this._node(place);
  }
  /** @param {TreePlace} place */
  _card({ number, own }) {
    return this.cards.find((card) => own ? card.own : card.number === number) ?? null;
  }
  /**
   * @param {TreePlace} place
   * @param {CardData} card
   */
  _fate({ own }, { fate }) {
    return own && fate !== "wrong" ? "bonus" : fate;
  }
  /**
   * @param {TreePlace} place
   * @returns {LineLook}
   */
  _edge(place) {
    let { p } = this, fate = this._card(place)?.fate ?? "";
    return this.lit.has(place.number) ? { stroke: p.blue, width: 2.5 } : place.own ? { stroke: fate === "wrong" ? p.red : p.amber, width: 3 } : fate === "accepted" || fate === "kept" ? { stroke: p.green, width: 3 } : fate === "unverified" ? { stroke: p.grey, dash: HOLLOW } : { stroke: p.grey, width: 1 };
  }
  /**
   * From the parent's right edge to the child's left one, at right angles.
   * @param {TreePlace} place
   * @param {LineLook} look
   */
  _line(place, look) {
    let { pen, at } = this, parent = at.place(place.parent);
    if (!parent) return;
    let from = parent.x + at.w, middle = (from + place.x) / 2, half = (look.width ?? 1) / 2;
    pen.line(from, parent.y, middle, parent.y, look);
    let down = Math.sign(place.y - parent.y) * half;
    down && pen.line(middle, parent.y - down, middle, place.y + down, look), pen.line(middle, place.y, place.x, place.y, look);
  }
  /** @param {TreePlace} place */
  _node(place) {
    if (place.number === ROOT) return this._root(place);
    let { pen, p, at } = this, card = this._card(place);
    if (!card) return;
    let token = place.own ? card.emitted : card.draft, lit = this.lit.has(place.number), fate = this._fate(place, card), { strong, soft } = this._colours(fate), hollow = fate === "unverified", taken = ["accepted", "kept", "bonus"].includes(fate);
    drawChip(pen, this.view.film.text(token), place.x, place.y, at.w, {
      fill: hollow ? void 0 : lit ? p.blueSoft : soft,
      stroke: lit ? p.blue : strong,
      dash: hollow ? HOLLOW : taken ? void 0 : [3, 2],
      height: CHIP,
      width: at.w
    }), lit && pen.rect(place.x, place.y - CHIP / 2, at.w, CHIP, { stroke: p.blue, width: 2, radius: 5 }), at.detail && this._name(place, card, strong), at.detail === 2 && !place.own && this._numbers(place, card);
  }
  /** @param {TreePlace} place */
  _root(place) {
    let { pen, p, at } = this, { film, step, row } = this.view, { request, length } = film.rows(step)[row], text = film.text(film.token(request, length - 1));
    drawChip(pen, text, place.x, place.y, at.w, {
      fill: p.page,
      stroke: p.blue,
      height: CHIP,
      width: at.w
    }), at.detail && pen.text("pending", place.x, place.y - CHIP / 2 - 7, {
      size: 10.5,
      fill: p.muted,
      max: at.w
    });
  }
  /**
   * Over the token: its name, its rank among the drafts of its parent, and the sign of its fate.
   * @param {TreePlace} place
   * @param {CardData} card
   * @param {string} strong
   */
  _name(place, card, strong) {
    let { pen, p, at } = this, y = place.y - CHIP / 2 - 7, fate = this._fate(place, card), sign = MARKS[fate]?.sign ?? "", quiet = MARKS[fate]?.pale || fate === "waiting", own = place.own ? "bonus" : card.name, name = { size: 10.5, weight: 700, fill: quiet ? p.muted : p.ink };
    pen.text(own, place.x, y, { ...name, max: at.w - 14 }), pen.text(sign, place.x + at.w, y, {
      size: 11,
      weight: 700,
      fill: quiet ? p.muted : strong,
      align: "right"
    });
    let node = this.nodes[place.number];
    if (!node || place.number === OWN || node.siblings < 2) return;
    let x = place.x + pen.measure(card.name, name) + 5, rank = `${node.rank}/${node.siblings}`;
    x + pen.measure(rank, { size: 10 }) < place.x + at.w - 14 && pen.text(rank, x, y, { size: 10, fill: p.muted });
  }
  /**
   * Under the token: q and p.
   * @param {TreePlace} place
   * @param {CardData} card
   */
  _numbers(place, card) {
    let { pen, p, at } = this, y = place.y + CHIP / 2 + 8, look = { size: 10.5, fill: p.muted, max: at.w }, q = `q ${chance(card.q)}`, target = card.p === null ? "" : `p ${chance(card.p)}`;
    pen.text(q, place.x, y, look), target && (at.stacked ? pen.text(target, place.x, y + 12, look) : pen.text(target, place.x + at.w, y, { ...look, align: "right" }));
  }
  /** @param {string} fate */
  _colours(fate) {
    let { p } = this;
    return {
      waiting: { strong: p.blue, soft: p.blueSoft },
      accepted: { strong: p.green, soft: p.greenSoft },
      kept: { strong: p.green, soft: p.greenSoft },
      rejected: { strong: p.orange, soft: p.orangeSoft },
      bonus: { strong: p.amber, soft: p.amberSoft },
      discarded: { strong: p.amber, soft: p.amberSoft },
      wrong: { strong: p.red, soft: p.redSoft }
    }[fate] ?? { strong: p.grey, soft: p.greySoft };
  }
};

// src/panels/tree.js
var TreePanel = class {
  static id = "tree";
  /** @param {View} view */
  constructor(view) {
    this.view = view, this._shown = hasTrees(view.film), this._layouts = new Kept(20), this._cards = new Kept();
  }
  get _entry() {
    return this.view.film.rows(this.view.step)[this.view.row];
  }
  empty() {
    return !this._shown || !this._entry;
  }
  key() {
    let { film, step, row } = this.view;
    return [film.round(step), film.phase(step), row, this._pointed()].join(" ");
  }
  /** The draft that is pointed at, here or anywhere on the page; -1 for none. */
  _pointed() {
    let { film, step, row, hover } = this.view;
    return film.phase(step) ? draftAt(film, step, row, hover) : -1;
  }
  get _nodes() {
    let { film, step, row } = this.view;
    return this._entry.drafted ? treeNodes(film, step, row) : [];
  }
  get _judgedCards() {
    let { film, step, row } = this.view;
    return this._cards.get(
      `${step} ${row}`,
      () => draftCards(film, step, row).map((card, n, all) => numbered(card, n, all))
    );
  }
  title() {
    let entry = this._entry, name = `Row ${this.view.row} \xB7 token tree`;
    if (!entry.gained) return `${name}: its request has ended`;
    if (!entry.drafted) return `${name}: nothing is drafted`;
    let deep = Math.max(...entry.drafts.map((_, j) => lineOf(entry, j).length)), ends = entry.drafts.filter((_, j) => !hasChild(entry, j)).length, branches2 = counted(ends, "branch", "branches");
    return `${name}, ${counted(entry.drafted, "draft")} on ${branches2}, ${deep} deep`;
  }
  /**
   * The phases of a round share one layout.
   * @param {number} width
   */
  _layout(width) {
    let { film, step, row } = this.view, entry = this._entry, own = { last: lastOf(entry), gained: entry.gained > entry.accepted };
    return this._layouts.get(
      `${film.round(step)} ${row} ${width}`,
      () => new TreeLayout(entry, own, width)
    );
  }
  /** @param {number} width */
  height(width) {
    return this._layout(width).height + (this._lines(width) - 1) * 15;
  }
  /**
   * @param {number} width
   */
  _lines(width) {
    return wrapWords(LONGEST2, width - 2 * PAD, { size: 11 }).length;
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    let at = this._layout(width), pointed = this._pointed(), lit = pointed < 0 ? [] : lineOf(this._entry, pointed), tree = { nodes: this._nodes, cards: this._judgedCards, lit };
    new TreePainter(pen, this.view, at, tree).paint(), wrapWords(this._words(), width - 2 * PAD, { size: 11 }).forEach(
      (line, n) => pen.text(line, PAD, at.words + n * 15, { size: 11, fill: pen.p.muted })
    );
  }
  _words() {
    let { film, step } = this.view, phase = film.phase(step);
    return this._entry.drafted ? phase === 0 ? "Nothing is drafted yet." : phase < 3 ? "Over a draft: its rank among those of one parent." : LONGEST2 : "";
  }
  describe() {
    let { film, step } = this.view, entry = this._entry, title = `${this.title()}.`, phase = film.phase(step);
    if (!entry.gained || !entry.drafted) return title;
    if (phase === 0) return `${title} Nothing is drafted yet.`;
    let first = this._nodes.filter((node) => node.parent < 0).map((node) => quoted(film.text(node.token)));
    if (phase < 3) return `${title} Behind the pending token: ${first.join(", ")}.`;
    let path = (entry.path ?? []).map((j) => `d${j + 1} ${quoted(film.text(entry.drafts[j]))}`), accepted = path.length ? `Accepted: ${path.join(", ")}` : "No draft is accepted", emitted = this._judgedCards.find((card) => card.own)?.emitted, behind = emitted == null ? "" : `; then the target's own ${quoted(film.text(emitted))}`;
    return `${title} ${accepted}${behind}. Arrow keys go from draft to draft.`;
  }
  table() {
    let { film } = this.view, rows = this._nodes.map((node) => {
      let card = this._cardOf(node.number);
      return [
        `d${node.number + 1}`,
        node.parent < 0 ? "pending" : `d${node.parent + 1}`,
        node.depth,
        film.text(node.token),
        `${node.rank} of ${node.siblings}`,
        chance(card?.q),
        chance(card?.p),
        node.slot ?? "\u2013",
        card?.words ?? ""
      ];
    }), head = [
      "draft",
      "follows",
      "depth",
      "token",
      "rank",
      "q",
      "target's p of it",
      "slot",
      "what became of it"
    ];
    return { caption: `Row ${this.view.row}, draft by draft`, head, rows };
  }
  /** @param {number} number */
  _cardOf(number) {
    return this._judgedCards.find((card) => card.number === number) ?? null;
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    let place = this._layout(width).at(x, y);
    return place && this._hitOf(place);
  }
  /**
   * @param {TreePlace} place
   * @returns {Hit | null}
   */
  _hitOf({ number }) {
    let { film, row } = this.view, entry = this._entry;
    if (number === ROOT) {
      let index = entry.length - 1, token = quoted(film.text(film.token(entry.request, index)), 60);
      return { row, slot: null, index, hint: `pending token ${token}: all drafts follow it` };
    }
    if (number === OWN) {
      let card = this._judgedCards.find((each) => each.own);
      if (!card || card.emitted === null) return null;
      let token = quoted(film.text(card.emitted), 60);
      return {
        row,
        slot: null,
        index: card.index,
        hint: `the target's own ${token} \u2014 ${card.words}`
      };
    }
    let node = this._nodes[number];
    return node ? this._nodeHit(node) : null;
  }
  /**
   * @param {TreeNode} node
   * @returns {Hit}
   */
  _nodeHit(node) {
    let { film, row } = this.view, card = this._cardOf(node.number), p = card?.p == null ? "" : `, p ${chance(card.p)}`, rank = node.siblings > 1 ? `, ${node.rank} of ${node.siblings} siblings` : "", said = `d${node.number + 1} ${quoted(film.text(node.token), 60)}, q ${chance(card?.q)}`;
    return {
      row,
      slot: node.slot,
      index: this._entry.length + node.depth - 1,
      draft: node.number,
      hint: `${said}${p}${rank} \u2014 ${card?.words ?? ""}`
    };
  }
  /**
   * What an arrow key leads to from the draft that is pointed at; null for any other key.
   * @param {string} key
   */
  steer(key) {
    let nodes = this._nodes;
    if (!nodes.length || !key.startsWith("Arrow")) return null;
    let now = nodes[this._pointed()];
    if (!now) return this._nodeHit(nodes[0]);
    let siblings = nodes.filter((node) => node.depth === now.depth), at = siblings.indexOf(now), next = {
      ArrowLeft: nodes[now.parent],
      ArrowRight: nodes.find((node) => node.parent === now.number),
      ArrowUp: siblings[at - 1],
      ArrowDown: siblings[at + 1]
    };
    return this._nodeHit(next[key] ?? now);
  }
}, LONGEST2 = "Green: the accepted branch. Over a draft: its rank among those of one parent.";
function hasChild(entry, j) {
  return entry.drafts.some((_, k) => (entry.parents ? entry.parents[k] : k - 1) === j);
}
function numbered(card, n, all) {
  if (card.number !== void 0) return card;
  let own = all.findIndex((each) => each.last);
  return card.last ? card : { ...card, number: n > own ? n - 1 : n };
}

// src/panels/cardline.js
var CARD_LINE = { least: 40, most: 58, gap: 4 }, NAME3 = 46, CHIP2 = 0.3, TARGET = 0.62;
function linePlaces(count, { x, y, w }, room) {
  let pitch = Math.min((room - y) / Math.max(count, 1), CARD_LINE.most + CARD_LINE.gap), h = Math.floor(pitch) - CARD_LINE.gap;
  return h < CARD_LINE.least ? null : { places: Array.from({ length: count }, (_, n) => ({
    x,
    y: y + n * (h + CARD_LINE.gap),
    w,
    h,
    bars: 0,
    lines: 1,
    chip: 0
  })), height: y + count * (h + CARD_LINE.gap) };
}
function drawCardLine(pen, view, card, at, [strong, soft]) {
  let { p } = pen, fate = MARKS[card.fate], quiet = fate.pale || card.fate === "waiting", fill = quiet ? p.muted : p.ink, top = at.y + at.h * 0.32, small = { size: 11, fill: p.muted }, lit = view.hover?.row === view.row && view.hover.index === card.index && card.index !== null;
  if (pen.rect(at.x, at.y, at.w, at.h, { fill: p.page, stroke: lit ? p.blue : p.faint, radius: 6 }), pen.rect(at.x, at.y + 4, 3, at.h - 8, { fill: strong }), pen.text(card.name, at.x + 10, top, { size: 12, weight: 700, fill, max: NAME3 - 4 }), card.draft !== null) {
    let chip = { fill: soft, stroke: strong, size: 11, height: 18 }, x = at.x + 10 + NAME3, w = drawChip(pen, view.film.text(card.draft), x, top, at.w * CHIP2, chip);
    card.q !== null && pen.text(`q ${chance(card.q)}`, x + w + 5, top, small);
  }
  let [first] = card.targetChoices;
  if (first) {
    let words = `${view.film.text(first[0])} ${chance(first[1])}`, x = at.x + at.w * TARGET;
    pen.text("p", x, top, small), pen.text(words, x + 11, top, { size: 11, mono: !0, fill, max: at.w * (1 - TARGET) - 34 });
  }
  let sign = { size: 13, weight: 700, fill: quiet ? p.muted : strong, align: "right" };
  pen.text(fate.sign, at.x + at.w - 9, top, sign);
  let bottom = at.y + at.h * 0.74;
  pen.text(card.words, at.x + 10, bottom, { size: 11, fill, max: at.w - 20 });
}

// src/panels/cardpaint.js
var CARD = {
  least: 88,
  most: 230,
  gap: 8,
  pad: 9,
  line: 15,
  bar: 21,
  head: 30,
  chip: 46,
  foot: 46
}, CardPainter = class {
  /**
   * @param {Pen} pen
   * @param {View} view
   * @param {CardData} card
   * @param {CardPlace} at
   */
  constructor(pen, view, card, at) {
    this.pen = pen, this.view = view, this.card = card, this.at = at, this.p = pen.p, this.left = at.x + CARD.pad, this.inner = at.w - 2 * CARD.pad, this.fate = MARKS[card.fate], this.hollow = card.fate === "unverified";
    let [strong, soft] = this._colours();
    this.strong = strong, this.soft = soft;
  }
  /** @returns {[string, string]} */
  _colours() {
    let { p } = this;
    return {
      waiting: [p.blue, p.blueSoft],
      accepted: [p.green, p.greenSoft],
      kept: [p.green, p.greenSoft],
      rejected: [p.orange, p.orangeSoft],
      bonus: [p.amber, p.amberSoft],
      discarded: [p.amber, p.amberSoft],
      wrong: [p.red, p.redSoft]
    }[this.card.fate] ?? [p.grey, p.greySoft];
  }
  /**
   * @param {string} words
   * @param {number} x
   * @param {number} y
   * @param {TextLook} [look]
   */
  text(words, x, y, look = {}) {
    this.pen.text(words, x, y, { size: 11, fill: this.p.muted, ...look });
  }
  paint() {
    let { pen, p, at, card } = this;
    if (!at.bars) return drawCardLine(pen, this.view, card, at, [this.strong, this.soft]);
    let lit = this._lit();
    pen.rect(at.x, at.y, at.w, at.h, {
      fill: this.hollow ? void 0 : p.page,
      stroke: lit ? p.blue : this.hollow ? p.grey : p.faint,
      width: lit ? 2 : 1,
      radius: 8,
      dash: this.hollow ? HOLLOW : void 0
    }), this.hollow || pen.rect(at.x + 8, at.y, at.w - 16, 3, { fill: this.strong }), this._head(at.y + 17), this._draft(at.y + CARD.head), this._target(at.y + CARD.head + at.chip);
    let foot = at.y + at.h - CARD.foot, words = wrapWords(card.words, this.inner, { size: 11 }), fill = this.fate.pale || card.fate === "waiting" ? p.muted : card.fate === "wrong" ? p.red : p.ink;
    words.forEach(
      (line, n) => this.text(line, this.left, foot + (n - at.lines + 0.5) * CARD.line, {
        fill,
        max: this.inner
      })
    ), this._emitted(foot + 4);
  }
  // Several drafts of a tree have one index.
  _lit() {
    let { film, step, row, hover } = this.view;
    if (hover?.row !== row || hover.index === null) return !1;
    let { number, index } = this.card;
    if (number === void 0) return hover.index === index;
    let draft = draftAt(film, step, row, hover);
    return number === null ? draft < 0 && hover.index === index : draft === number;
  }
  /** @param {number} y */
  _head(y) {
    let { card, at, fate } = this, quiet = fate.pale || card.fate === "waiting";
    this.text(card.name, this.left, y, {
      size: 13,
      weight: 700,
      fill: quiet ? this.p.muted : this.p.ink
    });
    let x = this.left + 8 + this.pen.measure(card.name, { size: 13, weight: 700 }), index = `index ${card.index}`;
    card.index !== null && x + this.pen.measure(index) + 24 < at.x + at.w && this.text(index, x, y + 1), this.text(fate.sign, at.x + at.w - CARD.pad, y, {
      size: 13,
      weight: 700,
      fill: quiet ? this.p.muted : this.strong,
      align: "right"
    });
  }
  /** @param {number} y */
  _draft(y) {
    let { card, p, pen } = this;
    if (card.last) {
      let { drafted } = this.view.film.rows(this.view.step)[this.view.row], none = drafted ? "no draft verified" : "nothing drafted";
      this.text(card.name === "next" ? none : "no draft", this.left, y + 7);
      return;
    }
    let q = card.q === null ? "" : `q ${chance(card.q)}`, room = this.inner - this.pen.measure(q) - 6, name = drafterName(this.view.film), short = this.pen.measure(name, { size: 11 }) > room && this.view.film.json.head;
    this.text(short ? "head" : name, this.left, y + 7), q && this.text(q, this.left + this.inner, y + 7, { align: "right" });
    let dash = card.fate === "accepted" || card.fate === "kept" ? void 0 : [3, 2], look = card.draft === null ? { fill: p.page, stroke: p.grey, dash } : { fill: this.hollow ? void 0 : this.soft, stroke: this.strong, dash };
    drawChip(
      pen,
      card.draft === null ? "?" : this._text(card.draft),
      this.left,
      y + 27,
      this.inner,
      look
    );
  }
  /** @param {number | null} token */
  _text(token) {
    return this.view.film.text(token);
  }
  /**
   * The target's choices; before it was asked, the draft's own.
   * @param {number} y
   */
  _target(y) {
    let { card, at } = this, asked = card.targetChoices.length > 0, choices = asked ? card.targetChoices : card.draftChoices;
    this.text(asked || !choices.length ? "target" : "choices", this.left, y + 7), choices.length && this.text(asked ? "p" : "q", this.left + this.inner, y + 7, { align: "right" }), this._choices(choices, card.p).forEach(
      ([token, p], n) => this._bar(token, p, y + 17 + n * CARD.bar)
    );
    for (let n = 0; n < at.bars && !choices.length; n++)
      this.pen.rect(this.left, y + 20 + n * CARD.bar, this.inner * (0.7 - 0.13 * n), CARD.bar - 8, {
        fill: this.p.greySoft,
        radius: 3
      });
  }
  /**
   * As many as fit, the draft's token among them.
   * @param {Choice[]} choices
   * @param {number | null | undefined} p
   * @returns {[number | null, number | null][]}
   */
  _choices(choices, p) {
    let { card, at } = this, shown = choices.slice(0, at.bars);
    return p == null || !choices.length || shown.some(([token]) => token === card.draft) ? shown : [...shown.slice(0, at.bars - 1), [card.draft, p]];
  }
  /**
   * A token, its probability, and that as a bar under both.
   * @param {number | null} token
   * @param {number | null | undefined} p
   * @param {number} y
   */
  _bar(token, p, y) {
    let { pen, card, p: colours } = this, own = token === card.draft, taken = card.own && token === card.emitted, middle = y + 7.5, fill = this.fate.pale ? colours.muted : colours.ink, number = chance(p), room = this.inner - pen.measure(number) - 8;
    pen.text(this._text(token), this.left, middle, {
      size: 11,
      mono: !0,
      fill,
      weight: own || taken ? 700 : 400,
      max: room
    }), pen.text(number, this.left + this.inner, middle, { size: 11, fill, align: "right" }), pen.rect(this.left, y + 15, this.inner, 3, { fill: colours.greySoft });
    let bar = taken ? colours.amber : own ? this.strong : colours.draft;
    pen.rect(this.left, y + 15, Math.max(this.inner * Math.min(p ?? 0, 1), 1.5), 3, { fill: bar });
  }
  /** @param {number} y */
  _emitted(y) {
    let { pen, card, p, at } = this;
    if (pen.line(this.left, y, at.x + at.w - CARD.pad, y, { stroke: p.faint }), card.emitted === null) {
      this.text(this.view.film.judged(this.view.step) ? "emits nothing" : "\u2013", this.left, y + 24);
      return;
    }
    let look = card.own ? { fill: p.amberSoft, stroke: p.amber, sign: "\u25CF" } : { fill: p.greenSoft, stroke: p.green, sign: "\u2713" }, wrong = card.fate === "wrong" ? { fill: p.redSoft, stroke: p.red, sign: "\u25B2" } : {};
    drawChip(pen, this._text(card.emitted), this.left, y + 24, this.inner, { ...look, ...wrong });
  }
};

// src/panels/verify.js
var CONTEXT = 34, VerifyPanel = class {
  static id = "verify";
  /** @param {View} view */
  constructor(view) {
    this.view = view, this._known = new Kept(), this._grids = new Kept(20);
  }
  empty() {
    return !this.view.film.rows(this.view.step)[this.view.row];
  }
  // What is judged stays as it is to the end of the round.
  key() {
    let { film, step, row, hover } = this.view, pointed = hover?.row === row ? `${hover.index} ${hover.draft ?? hover.slot}` : "", { room } = this.view;
    return [film.round(step), Math.min(film.phase(step), 3), row, room, pointed].join(" ");
  }
  /** @param {number} [step] */
  cards(step = this.view.step) {
    let { film, row } = this.view;
    return this._known.get(`${step} ${row}`, () => draftCards(film, step, row));
  }
  get _entry() {
    return this.view.film.rows(this.view.step)[this.view.row];
  }
  title() {
    let name = `Row ${this.view.row}`;
    if (!this._entry.gained) return `${name} idles: its request has ended`;
    if (!this._entry.drafted) return `${name} \xB7 the target's next token`;
    let drafter = drafterName(this.view.film), unsaid = this.view.film.json.gaps?.cards;
    return unsaid ? `${name} \xB7 verification; ${unsaid}` : `${name} \xB7 verification: what the ${drafter} said, what the target says`;
  }
  heading() {
    let plain = !this._entry.gained || !this._entry.drafted || this.view.film.json.gaps?.cards, phase = this.view.film.phase(this.view.step);
    if (plain) return this.title();
    let name = drafterName(this.view.film);
    return `Row ${this.view.row} \xB7 ${phase < 2 ? `what the ${name} said` : `${name} and target`}`;
  }
  /**
   * Where the cards lie: {x, y, w, h} in px, {bars, lines} of a card, chip: px of what the draft
   * said. The phases of a round share it.
   * @param {number} width
   */
  _grid(width) {
    let { film, step, row } = this.view, last = step - film.phase(step) + 4, { room } = this.view;
    return this._grids.get(`${last} ${row} ${width} ${room}`, () => {
      let cards = this.cards(last), forms = [4, 3, 2, 1].map((most) => () => this._places(cards, width, most)), fits = forms.map((form) => form()).find(({ height }) => height <= (room ?? 1 / 0)), at = { x: PAD, y: CONTEXT, w: width - 2 * PAD };
      return fits ?? linePlaces(cards.length, at, room ?? 0) ?? forms[3]();
    });
  }
  /**
   * @param {CardData[]} cards
   * @param {number} width
   * @param {number} most choices on a card
   */
  _places(cards, width, most) {
    let room = width - 2 * PAD, beside = Math.max(Math.floor((room + CARD.gap) / (CARD.least + CARD.gap)), 1), rows = Math.ceil(cards.length / beside), across = Math.ceil(cards.length / Math.max(rows, 1)), bars = Math.min([4, 4, 3][rows] ?? 2, most), chip = cards.length > 1 ? CARD.chip : 20, w = Math.min(
      (room - (across - 1) * CARD.gap) / Math.max(across, 1),
      cards.length === 1 ? room : CARD.most
    ), places = [], y = CONTEXT;
    for (let n = 0; n < rows; n++) {
      let some = cards.slice(n * across, (n + 1) * across), lines2 = Math.max(...some.map((card) => this._words(card, w).length)), h = CARD.head + chip + 18 + bars * CARD.bar + 8 + lines2 * CARD.line + CARD.foot;
      some.forEach(
        (_, k) => places.push({ x: PAD + k * (w + CARD.gap), y, w, h, bars, lines: lines2, chip })
      ), y += h + CARD.gap;
    }
    return { places, height: y + 2 };
  }
  /**
   * @param {CardData} card
   * @param {number} w
   */
  _words(card, w) {
    return wrapWords(card.words, w - 2 * CARD.pad, { size: 11 });
  }
  /** @param {number} width */
  height(width) {
    return this._entry.gained ? this._grid(width).height : CONTEXT + 8;
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    this._context(pen, width);
    let { places } = this._grid(width), cards = this.cards();
    cards.forEach((card, n) => new CardPainter(pen, this.view, card, places[n]).paint());
    let last = places[cards.findIndex((card) => card.fate === "unverified") - 1];
    last && drawCut(pen, last.x + last.w + CARD.gap / 2 + 1, last.y, last.h, 3);
  }
  /**
   * The row's last tokens before the round, as far as they fit, and its pending one.
   * @param {Pen} pen
   * @param {number} width
   */
  _context(pen, width) {
    let { film } = this.view, { request, length } = this._entry, { p } = pen, y = CONTEXT / 2 - 3, look = { size: 11.5, mono: !0 }, pending = film.text(film.token(request, length - 1)), chip = Math.min(pen.measure(pending, look) + 28, 160), x = PAD + pen.measure("the row so far", { size: 11 }) + 10, first = length - 1, room = width - PAD - x - chip - 14;
    pen.text("the row so far", PAD, y, { size: 11, fill: p.muted });
    let textOf = (index) => pen.cut(film.text(film.token(request, index)), LONGEST, look), widthOf = (text) => pen.measure(text, look) + 4;
    for (; first > 0 && widthOf(textOf(first - 1)) <= room; ) room -= widthOf(textOf(--first));
    first && pen.text("\u2026", x, y, { size: 11, fill: p.muted }), first && (x += 14);
    for (let index = first; index < length - 1; index++)
      pen.text(textOf(index), x, y, { ...look, fill: p.muted }), x += widthOf(textOf(index));
    drawChip(pen, pending, x, y, chip, { fill: p.page, stroke: p.blue, sign: "\u25CB" });
  }
  describe() {
    let { film, step, row } = this.view, entry = this._entry, phase = film.phase(step);
    if (!entry.gained) return `${this.title()}.`;
    let drafts = entry.drafts.map((token) => quoted(film.text(token))).join(" ");
    if (phase === 0)
      return `Row ${row} holds ${counted(entry.length, "token")}; nothing is drafted yet.`;
    if (phase < 3 && !entry.drafted) return `Row ${row} drafts nothing.`;
    let partly = leftOut(entry) > 0, share = `${shareWords(entry, phase > 1)}.`, waiting = phase === 1 ? "The target has not read them." : "Not judged yet.", unread = partly ? `${waiting} ${share}` : waiting;
    if (phase < 3) return `Row ${row}, drafted: ${drafts}. ${unread}`;
    let emitted = entry.emitted.map((token) => quoted(film.text(token))).join(" ");
    if (branches(entry)) return `Row ${row}: ${this._accepted(entry, partly)}emitted ${emitted}.`;
    let stop = this.cards().find(
      (card) => !["accepted", "bonus", "unverified"].includes(card.fate)
    ), why = stop && entry.drafted ? ` ${stop.name}: ${stop.words}.` : "", accepted = this._accepted(entry, partly), first = partly ? this.cards()[entry.verified + 1] : null, left = first ? ` ${share} ${first.name}: ${first.words}.` : "";
    return `Row ${row}: ${accepted}emitted ${emitted}.${why}${left}`;
  }
  /**
   * @param {RowEntry} entry
   * @param {boolean} partly
   */
  _accepted(entry, partly) {
    if (!entry.drafted) return "";
    let drafts = counted(entry.verified, partly ? "verified draft" : "draft"), names = (entry.path ?? []).map((j) => `d${j + 1}`).join(" "), branch = branches(entry) && names ? ` (${names})` : "";
    return `${entry.accepted} of ${drafts} accepted${branch}, `;
  }
  table() {
    let { film } = this.view, text = (token) => token === null ? "\u2013" : film.text(token), list = (choices) => choices.map(([token, p]) => `${film.text(token)} ${chance(p)}`).join(", ") || "\u2013", rows = this.cards().map((card) => [
      card.name,
      card.index ?? "\u2013",
      text(card.draft),
      chance(card.q),
      chance(card.p),
      card.words,
      text(card.emitted),
      list(card.draftChoices),
      list(card.targetChoices)
    ]);
    return { caption: "", head: [
      "",
      "index",
      "draft",
      "q",
      "target's p of it",
      "what became of it",
      "emitted",
      `${drafterName(film)}'s choices`,
      "target's choices"
    ], rows };
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    if (!this._entry.gained) return null;
    let holds = (at) => x >= at.x && x < at.x + at.w && y >= at.y && y < at.y + at.h, card = this.cards()[this._grid(width).places.findIndex(holds)];
    if (!card) return null;
    let { film, row } = this.view, said = card.draft === null ? "" : ` ${quoted(film.text(card.draft), 60)}, q ${chance(card.q)}`, p = card.p === null ? "" : `, p ${chance(card.p)}`;
    return {
      row,
      slot: this._slotOf(card),
      index: card.index,
      hint: `${card.name}${said}${p} \u2014 ${card.words}`,
      ...card.number === void 0 || card.number === null ? {} : { draft: card.number }
    };
  }
  /**
   * Where a card's token stands in the batch now, null if nowhere.
   * @param {CardData} card
   */
  _slotOf(card) {
    if (card.fate === "unverified" && this.view.film.phase(this.view.step) > 1) return null;
    let { film, step, row } = this.view;
    if (card.index === null) return null;
    if (typeof card.number == "number") return slotsOf(film, step, row)[card.number];
    let { index } = card, wanted = card.emitted ?? card.draft, found = [];
    for (let run of film.lane(step, "tokens", row)) {
      let slot = run[0] + index - run[3];
      run[3] >= 0 && slot >= run[0] && slot < run[1] && found.push({ slot, cell: film.cellOf(run, slot) });
    }
    return (found.find(({ cell }) => cell.token === wanted) ?? found[0])?.slot ?? null;
  }
};

// src/page/fit.js
var ROW = { least: 46, most: 68 }, LOW_BELOW = 52;
function frameHeight(root) {
  for (let at = root.parentElement; at; at = at.parentElement) {
    let { overflowY } = getComputedStyle(at);
    if ((overflowY === "auto" || overflowY === "scroll") && at.clientHeight < at.scrollHeight && at !== document.body)
      return Math.min(at.clientHeight, window.innerHeight);
  }
  return window.innerHeight;
}
function fit({ frame, rest, legend, map, lowMap, rows, low }) {
  let row = (asLow) => (frame - rest - (asLow ? lowMap : map)) / Math.max(rows, 1), chosen2 = low ?? row(!1) < LOW_BELOW, tight = row(chosen2) < ROW.least, most = row(chosen2) + (tight ? legend / Math.max(rows, 1) : 0);
  return {
    low: chosen2,
    tight,
    row: Math.floor(Math.min(Math.max(most, ROW.least), ROW.most))
  };
}
function mostLines(sentences2, linesOf) {
  let longest = [...new Set(sentences2)].sort((a, b) => b.length - a.length).slice(0, 6);
  return Math.max(1, ...longest.map(linesOf));
}

// src/page/lens.js
function chosen(entries, phase, pinned) {
  let open = entries.filter(({ empty }) => !empty);
  return (open.find(({ name }) => name === pinned) ?? open.find(({ phases }) => phases.includes(phase)) ?? open[0])?.name ?? null;
}
var Lens = class {
  /**
   * @param {Entry[]} entries
   * @param {(name: string | null) => void} pin
   */
  constructor(entries, pin) {
    this.entries = entries, this.shown = null, this.pinned = null, this.empty = entries.map(() => !1), this.tabs = entries.map(({ name, word }) => element("button", { ...{
      type: "button",
      class: "sv-tab",
      "aria-pressed": "false",
      on: { click: () => pin(this.pinned === name ? null : name) }
    }, "data-lens": name }, word)), this.said = element("span", { class: "sv-pinned", "aria-hidden": "true" }), this.bar = element(
      "div",
      { class: "sv-tabs", role: "group", "aria-label": "lens" },
      ...this.tabs,
      this.said
    ), this.inside = element(
      "div",
      { class: "sv-inside", tabindex: "0", role: "group", "aria-label": "what the lens shows" },
      ...entries.map(({ section }) => section.root)
    ), this.root = element("div", { class: "sv-lens" }, this.bar, this.inside);
  }
  /**
   * To be called before the sections are painted: those that are not seen are not drawn.
   * @param {number} phase
   * @param {string | null} pinned
   */
  update(phase, pinned) {
    let known = this.entries.map(({ name, phases, section }) => ({
      name,
      phases,
      empty: section.panel.empty()
    }));
    this.pinned = pinned;
    let before = this.entries.find(({ name }) => name === this.shown)?.section;
    this.shown = chosen(known, phase, pinned), this.entries.forEach(({ name, section }, n) => {
      section.aside = name !== this.shown, section.width ||= before?.width ?? 0, this.empty[n] = known[n].empty;
    });
  }
  /** What the update found, for those who look at the page. */
  tell() {
    this.entries.forEach(({ name, section }, n) => {
      let shown = name === this.shown;
      shown ? setAttribute(this.tabs[n], "aria-current", "true") : this.tabs[n].removeAttribute("aria-current"), this.tabs[n].hidden !== this.empty[n] && (this.tabs[n].hidden = this.empty[n]), setAttribute(this.tabs[n], "aria-pressed", String(name === this.pinned));
      let hidden = !shown || this.empty[n];
      section.root.hidden !== hidden && (section.root.hidden = hidden);
    }), setText(this.said, this.pinned ? "pinned" : "follows");
  }
};

// src/page/section.js
var Section = class {
  /**
   * under: what is drawn below the panel, and cannot be pointed at
   * @param {Desk} desk
   * @param {Panel} panel
   * @param {Drawable[]} [under]
   */
  constructor(desk, panel, under = []) {
    this.desk = desk, this.panel = panel, this.under = under, this.width = 0, this.asTable = !1, this.aside = !1, this.dragging = !1, this.dragged = !1, this.pens = /* @__PURE__ */ new Map(), this.drawn = /* @__PURE__ */ new Map(), this.ready = /* @__PURE__ */ new Map(), this.heading = element("h3");
    let click = () => this.showTable(!this.asTable);
    this.toggle = element(
      "button",
      { type: "button", class: "sv-small", "aria-pressed": "false", on: { click } },
      "table"
    ), this.canvas = this._makeCanvas(), this.legends = under.map(() => element("canvas", { role: "img", class: "sv-legend" })), this.tableBox = element("div", {
      class: "sv-table",
      tabindex: "0",
      role: "group",
      hidden: !0
    }), this.body = element("div", { class: "sv-body" }, this.canvas, this.tableBox, ...this.legends), this.head = element("div", { class: "sv-head" }, this.heading, this.toggle), this.root = element(
      "div",
      { class: `sv-panel sv-${/** @type {any} */
      panel.constructor.id}` },
      this.head,
      this.body
    ), this.observer = new ResizeObserver(() => this._resized()), this.observer.observe(this.body);
  }
  dispose() {
    this.observer.disconnect();
  }
  /** @param {HTMLElement[]} tools beside the heading */
  addTools(tools) {
    for (let tool of tools) this.head.insertBefore(tool, this.toggle);
  }
  _makeCanvas() {
    return element("canvas", { role: "img", on: {
      pointermove: (event) => this._move(event),
      pointerleave: () => this._leave(),
      pointerdown: (event) => this._press(event),
      pointerup: () => this._release(),
      pointercancel: () => this._release(),
      click: (event) => this._click(event),
      wheel: (event) => this._wheel(event)
    } });
  }
  _resized() {
    let width = Math.floor(this.body.clientWidth);
    width === this.width || !width || (this.width = width, this.desk.touch(this));
  }
  /** @param {boolean} shown */
  showTable(shown) {
    this.asTable = shown, this.toggle.setAttribute("aria-pressed", String(shown)), this.canvas.hidden = shown, this.tableBox.hidden = !shown, this.desk.touch(this);
  }
  // False: it could not be drawn, because it has no place on the page yet.
  paint() {
    let hidden = this.aside || this.panel.empty();
    return this.root.hidden !== hidden && (this.root.hidden = hidden), hidden ? !0 : (this.width ||= Math.floor(this.body.clientWidth), this.width ? (this.asTable || this._draw(this.canvas, this.panel), this.under.forEach((panel, n) => this._draw(this.legends[n], panel)), !0) : !1);
  }
  // All that is not drawn, once all panels are: a canvas asks for its style, which every change of
  // the page makes out of date.
  tell() {
    if (this.root.hidden || !this.width) return;
    let title = this.panel.title();
    setText(this.heading, this.panel.heading?.() ?? title), setAttribute(this.toggle, "aria-label", `show as table: ${title}`), this.asTable && this._fillTable();
    for (let [canvas, { panel }] of this.drawn)
      setAttribute(canvas, "aria-label", panel.describe());
  }
  _fillTable() {
    let table = this.panel.table();
    setAttribute(
      this.tableBox,
      "aria-label",
      [this.panel.title(), table.caption].filter(Boolean).join(". ")
    ), this.tableBox.replaceChildren(tableElement(table));
  }
  /**
   * A panel looks the same as long as this does.
   * @param {Drawable} panel
   */
  _look(panel) {
    let ratio2 = (window.devicePixelRatio || 1) * this.desk.scale();
    return {
      key: `${panel.key()} ${this.width} ${ratio2}`,
      palette: this.desk.palette(),
      panel,
      ratio: ratio2
    };
  }
  /**
   * What looks the same is not drawn again, and of what was drawn ahead the picture is shown.
   * @param {any} canvas
   * @param {Drawable} panel
   */
  _draw(canvas, panel) {
    let look = this._look(panel), ready = this.ready.get(canvas);
    if (alike(this.drawn.get(canvas), look)) return;
    if (this.drawn.set(canvas, look), !ready || !alike(ready, look)) {
      this._redraw(canvas, look);
      return;
    }
    let context = this._clear(canvas, ready);
    context.resetTransform(), context.drawImage(ready.picture, 0, 0);
  }
  /**
   * @param {any} canvas
   * @param {Look} look
   */
  _redraw(canvas, look) {
    let height = Math.ceil(look.panel.height(this.width)), pen = this._pen(canvas, this._clear(canvas, { ...look, height }), look);
    return pen.forget(), look.panel.draw(pen, this.width, height), height;
  }
  /**
   * @param {any} canvas
   * @param {{ height: number; ratio: number }} at
   */
  _clear(canvas, { height, ratio: ratio2 }) {
    let [w, h] = [Math.round(this.width * ratio2), Math.round(height * ratio2)], context = canvas.getContext("2d");
    return (canvas.width !== w || canvas.height !== h) && ([canvas.width, canvas.height] = [w, h], canvas.style && (canvas.style.height = `${height}px`)), context.setTransform(ratio2, 0, 0, ratio2, 0, 0), context.clearRect(0, 0, this.width, height), context;
  }
  // Draw out of sight what the panels will look like; the desk sees to it that they know.
  prepare() {
    this.aside || this.asTable || !this.width || this.panel.empty() || [this.panel, ...this.under].forEach((panel, n) => {
      let canvas = [this.canvas, ...this.legends][n], look = this._look(panel), known = this.ready.get(canvas);
      if (alike(this.drawn.get(canvas), look) || alike(known, look)) return;
      let aside = known?.aside ?? new OffscreenCanvas(1, 1), height = this._redraw(aside, look);
      known?.picture.close(), this.ready.set(canvas, { ...look, aside, height, picture: aside.transferToImageBitmap() });
    });
  }
  /**
   * A pen keeps patterns that belong to one palette and one resolution.
   * @param {any} canvas
   * @param {CanvasRenderingContext2D} context
   * @param {Look} at
   */
  _pen(canvas, context, { palette, ratio: ratio2 }) {
    let kept = this.pens.get(canvas);
    if (kept?.p === palette && kept.ratio === ratio2) return kept;
    let pen = Object.assign(new CanvasPen(palette, context), { ratio: ratio2 });
    return this.pens.set(canvas, pen), pen;
  }
  /** @param {any} event */
  _move(event) {
    if (this.dragging) {
      this.panel.drag?.(event.offsetX, event.offsetY, this.width) && this.desk.touch(this);
      return;
    }
    let found = this.panel.hit(event.offsetX, event.offsetY, this.width);
    this.desk.point(found && placeOf(found)), this.desk.tip(found?.hint, event);
  }
  _leave() {
    this.desk.point(null), this.desk.tip(null);
  }
  /** @param {any} event */
  _press(event) {
    this.dragged = !!this.panel.drag?.(event.offsetX, event.offsetY, this.width), this.dragged && (this.dragging = !0, this.canvas.setPointerCapture(event.pointerId), this.desk.touch(this));
  }
  _release() {
    this.dragging = !1;
  }
  /** @param {any} event */
  _click(event) {
    if (this.dragged) return;
    if (this.panel.click) return this.panel.click(event.offsetX, event.offsetY, this.width);
    let found = this.panel.hit(event.offsetX, event.offsetY, this.width);
    found && found.row !== null && found.row !== void 0 && this.desk.pick(found.row);
  }
  /**
   * Sideways: the stage slides. Anything else belongs to the page.
   * @param {any} event
   */
  _wheel(event) {
    let sideways = event.shiftKey && !event.deltaX ? event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    !this.panel.panBy || !sideways || (event.preventDefault(), this.panel.panBy(sideways / 30), this.desk.touch(this));
  }
};
function placeOf({ row, slot, index, draft }) {
  return draft === void 0 ? { row, slot, index } : { row, slot, index, draft };
}
function alike(one, other) {
  return one?.key === other.key && one.palette === other.palette;
}

// src/page/list.js
var ListSection = class extends Section {
  /**
   * @param {Desk} desk
   * @param {InvariantPanel} panel
   */
  constructor(desk, panel) {
    super(desk, panel), this.invariants = panel, this.listed = void 0, this.list = element("ul", { class: "sv-violations" }), this.canvas.remove(), this.body.prepend(this.list);
  }
  /** @param {boolean} shown */
  showTable(shown) {
    this.list.hidden = shown, super.showTable(shown);
  }
  /** @override */
  _draw() {
    let items = this.invariants.items(), key = JSON.stringify(items.map((item) => [item, this.desk.happening(item.step)]));
    if (key === this.listed) return;
    this.listed = key;
    let focused = this.list.contains(document.activeElement), unchecked = this.invariants.unchecked(), note = unchecked ? [element("li", { class: "sv-note" }, unchecked)] : [];
    this.list.replaceChildren(
      ...items.map((item) => element("li", {}, this._button(item))),
      ...note
    ), focused && this.desk.focus();
  }
  prepare() {
  }
  // there is nothing to draw
  /** @param {Item} at */
  _button({ text, row, slot, step }) {
    let click = () => {
      this.desk.go(step), this.desk.pick(row), this.desk.point({ row, slot: slot ?? null, index: null });
    }, here = this.desk.happening(step), sign = element("span", { "aria-hidden": "true" }, here ? "\u25B2" : "\u2192");
    return element(
      "button",
      { type: "button", class: here ? "sv-wrong" : null, on: { click } },
      sign,
      text
    );
  }
};

// src/page/steered.js
var SteeredSection = class extends Section {
  /**
   * @param {Desk} desk
   * @param {Panel} panel
   */
  constructor(desk, panel) {
    super(desk, panel), this.said = element("p", { class: "sv-said", "aria-live": "polite" }), this.body.append(this.said), this.canvas.tabIndex = 0, this.canvas.addEventListener("keydown", (event) => this._steer(event)), this.canvas.addEventListener("blur", () => this._leave());
  }
  /**
   * The keys must not go through the steps of the run as well.
   * @param {KeyboardEvent} event
   */
  _steer(event) {
    let found = !event.ctrlKey && !event.metaKey && !event.altKey && !event.shiftKey ? this.panel.steer?.(event.key) ?? null : null;
    found && (event.preventDefault(), event.stopPropagation(), this.desk.point(placeOf(found)), setText(this.said, found.hint));
  }
};

// src/page/run.js
var WORDS2 = 14.5, OWN_WORDS = 13, Run = class {
  /** @type {Stage} */
  stage;
  /** @type {Legend} */
  legend;
  /** @type {Lens} */
  lens;
  /** @type {Section[]} */
  sections;
  /** @type {HTMLElement} */
  root;
  /** @type {HTMLElement} */
  title;
  /** @type {HTMLElement} */
  words;
  /** @type {string | undefined} */
  _shown;
  /**
   * @param {Shell} shell
   * @param {Film} film
   * @param {number} number
   */
  constructor(shell, film, number) {
    this.shell = shell, this.film = film, this.number = number;
    let { comparison } = shell;
    this.view = {
      film,
      step: 0,
      row: 0,
      hover: null,
      palette: shell.palette,
      progress: 1,
      zoom: null,
      pan: 0,
      tall: null,
      room: null,
      turn: 0,
      other: comparison ? comparison.films[1 - number] : null,
      differs: (request, index) => comparison?.differs(request, index) ?? !1,
      pick: (row) => shell.pick(this.requestOf(row)),
      point: (place) => shell.point(this, place),
      go: (step) => shell.goTo(this, step)
    }, this._makeSections(), this._makeRoot();
  }
  _makeSections() {
    let { view, shell, film } = this, desk = {
      palette: () => shell.palette,
      scale: () => shell.screen?.scale ?? 1,
      touch: (section) => shell.frames.touch(section),
      tip: (hint, event) => shell.tip.show(hint, event),
      point: view.point,
      pick: view.pick,
      go: view.go,
      happening: (step) => step <= view.step && film.round(step) === film.round(view.step),
      focus: () => shell.root.focus({ preventScroll: !0 })
    };
    this.stage = new Stage(view), this.legend = new Legend(view);
    let of = (Panel) => new Section(desk, new Panel(view)), tree = hasTrees(film) ? [new SteeredSection(desk, new TreePanel(view))] : [], [cards, mask] = [of(VerifyPanel), of(MaskPanel)], entries = [
      { name: "pool", word: "pool", section: of(PoolPanel), phases: [0] },
      { name: "rows", word: "rows", section: of(EnteredPanel), phases: [0] },
      { name: "verify", word: "cards", section: cards, phases: [1, 3] },
      ...tree.map((section) => ({ name: "tree", word: "tree", section, phases: [] })),
      { name: "mask", word: "mask", section: mask, phases: [2] },
      { name: "moves", word: "moves", section: of(MovesPanel), phases: [4] },
      { name: "time", word: "time", section: of(TimePanel), phases: [] },
      {
        name: "invariants",
        word: film.violations.length ? "checks \u25B2" : "checks",
        section: new ListSection(desk, new InvariantPanel(view)),
        phases: []
      }
    ];
    this.lens = new Lens(entries, (name) => shell.pin(name));
    let inLens = entries.map(({ section }) => section);
    this.sections = [new Section(desk, this.stage, [this.legend]), ...inLens];
  }
  _makeRoot() {
    this.title = element("p", { class: "sv-title" }), this.words = element("p", { class: "sv-words", "aria-live": "polite", "aria-atomic": "true" });
    let label = this.shell.comparison ? `${this.number ? "second" : "first"} run: ${runName(this.film)}` : null;
    this.root = element(
      "div",
      { class: "sv-run", role: label && "group", "aria-label": label },
      ...label ? [this.title] : [],
      this.words,
      element("div", { class: "sv-screen" }, this.sections[0].root, this.lens.root)
    );
  }
  /** The lens of the step that is shown. */
  turnLens() {
    this.lens.update(this.film.phase(this.view.step), this.shell.pinned);
  }
  /**
   * Room for the longest sentence of the run, so that nothing moves from one step to the next.
   * @param {number} width
   */
  reserve(width) {
    let { rounds, phases } = this.film.json, room = Math.min(width, 1150) - 8, said = rounds.flatMap(
      ({ stages }) => stages.map(({ words }, phase) => `${capital(phases[phase])}. ${words}`)
    ), own = rounds.flatMap(
      ({ stages }) => stages.flatMap(({ words_of }) => (words_of ?? []).map((words) => `Row 99: ${words}.`))
    ), lines2 = (size) => (words) => wrapWords(words, room, { size, weight: 500 }).length, [most, mostOwn] = [mostLines(said, lines2(WORDS2)), mostLines(own, lines2(OWN_WORDS))], height = most * WORDS2 * 1.42 + (own.length ? mostOwn * OWN_WORDS * 1.42 : 0);
    this.words.style.height = `${Math.ceil(height) + 2}px`;
  }
  dispose() {
    this.sections.forEach((section) => section.dispose());
  }
  /** @param {number} row */
  requestOf(row) {
    return this.film.rows(this.view.step)[row]?.request ?? null;
  }
  /**
   * Show a step and, of its rows, `row`; animate: K/V that this step moves is seen moving. Returns
   * whether it has to.
   * @param {number} step
   * @param {number} row
   * @param {boolean} animate
   */
  show(step, row, animate) {
    let moves = animate && step !== this.view.step && this.film.stage(step).moves.length > 0;
    return Object.assign(this.view, { step, row, hover: null, progress: moves ? 0 : 1 }), this.turnLens(), moves;
  }
  /**
   * The sentence of the phase, and that of the row where there is one. missing: the request that
   * was chosen is not here now.
   * @param {number | null} missing
   * @param {boolean} over
   */
  tell(missing, over) {
    let { film, view } = this;
    this.lens.tell();
    let key = [view.step, view.row, missing, over].join();
    if (key === this._shown) return;
    this._shown = key;
    let away = `Request ${missing} is not in this run's batch now; shown is row ${view.row}.`, { phase, words, own } = sentences(view), extra = element("span", { class: "sv-own" }, missing === null ? own : away);
    this.words.replaceChildren(element("strong", {}, phase), ` ${words} `, extra);
    let facts = [...runFacts(film, view.step), ...over ? ["over"] : []].join(" \xB7 ");
    this.title.replaceChildren(element("strong", {}, runName(film)), ` ${facts} `, badge(film));
  }
};
function samePlace(one, other) {
  return !one || !other ? one === other : one.row === other.row && one.slot === other.slot && one.index === other.index && one.draft === other.draft;
}
function placeIn(other, run, place) {
  if (!place || place.row === null) return null;
  let request = run.requestOf(place.row), row = request === null ? -1 : other.film.rowOf(other.view.step, request);
  if (row < 0) return null;
  let { index } = place;
  if (index === null) return { row, index, slot: null };
  for (let [start2, stop, , first, , owner] of other.film.lane(other.view.step, "tokens", row))
    if (owner === request && index >= first && index < first + stop - start2)
      return { row, index, slot: start2 + index - first };
  return { row, index, slot: null };
}
function sentences({ film, step, row }) {
  let stage = film.stage(step), own = stage.words_of?.[row];
  return {
    phase: `${capital(film.phaseName(step))}.`,
    words: stage.words,
    own: own ? `Row ${row}: ${own}.` : ""
  };
}
function runName(film) {
  let { meta, options } = film.json, shown = Object.entries(options).map(([name, value]) => `${name}=${value}`);
  return !film.checked || !shown.length ? meta.strategy : `${meta.strategy} (${shown.join(", ")})`;
}
function runFacts(film, step) {
  let { num_draft_tokens: k, decisions, selector = "everything" } = film.json.meta, rows = film.rows(step).length, scene = film.scene(step), round = `round ${film.round(step)} / ${film.json.rounds.length - 1}`, chosen2 = selector === "everything" ? [] : [`selector ${selector}`], head = film.json.head ? [film.json.head] : [], facts = [counted(rows, "row"), ...head, `K = ${k}`, ...chosen2, round, film.phaseName(step)];
  return decisions.length > 1 ? [...facts, scene.decision] : facts;
}
function verdictOf(film) {
  if (!film.checked) return "not judged";
  let rules = [...new Set(film.violations.map((each) => each.rule))];
  return rules.length ? `\u25B2 breaks: ${rules.join(", ")}` : film.json.gaps?.unchecked.length ? "\u2713 nothing broken, as far as it was logged" : `\u2713 ${film.json.meta.valid ? "valid" : "promises nothing, breaks nothing here"}`;
}
function badge(film) {
  let look = film.violations.length > 0 ? " sv-broken" : film.checked ? " sv-valid" : "";
  return element("span", { class: `sv-badge${look}` }, verdictOf(film));
}
function capital(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

// src/panels/poolwords.js
function largestGroup(pool) {
  let counts = /* @__PURE__ */ new Map();
  for (let { length } of pool) counts.set(length, (counts.get(length) ?? 0) + 1);
  return [...counts].map(([length, count]) => ({ length, count })).reduce((best, each) => each.count > best.count ? each : best);
}
function decisionWords(film, step) {
  let { batch_size: size, strategy_options: options } = film.json.meta, { decision, pool } = film.scene(step), chosen2 = pool.filter((each) => each.chosen), rows = counted(chosen2.length, "sequence");
  if (decision === "grouped") return `grouped: ${rows} of length ${chosen2[0]?.length}`;
  if (decision === "overdue") {
    let same = new Set(chosen2.map((each) => each.length)).size === 1;
    return `overdue: ${`a sequence waited as often as max_wait = ${options.max_wait} allows`}, so those that waited longest run${same ? "" : ", realigned"}`;
  }
  let none = `no ${Math.min(size, pool.length)} sequences share a length`;
  if (decision === "partial") {
    let run = chosen2.length === 1 ? "runs" : "run";
    return `fallback partial: ${none}, so ${rows} of length ${chosen2[0]?.length} ${run} alone`;
  }
  if (decision === "realigned") {
    let { count, length } = largestGroup(pool), closest = count > 1 ? ` (at most ${count} do, ${length} each)` : "";
    return `fallback realign: ${none}${closest}, so those that entered first are realigned`;
  }
  return decision;
}
function waitWords(pool) {
  let waiting = pool.filter((each) => !each.chosen);
  if (!waiting.length) return "none waits";
  let { request, waited } = waiting.reduce(
    (longest, each) => each.waited > longest.waited ? each : longest
  ), words = counted(waiting.length, "sequence waits", "sequences wait");
  if (!waited) return `${words} for the first time`;
  let which = `request ${request}${waiting.length > 1 ? " longest" : ""}`;
  return `${words}, ${which}: passed over ${counted(waited, "time")} before`;
}
function commonLength(pool) {
  let chosen2 = pool.filter((each) => each.chosen), lengths = new Set(chosen2.map((each) => each.length)), { length, count } = largestGroup(pool);
  return lengths.size === 1 ? { length: [...lengths][0], grouped: !0 } : count > 1 ? { length, grouped: !1 } : null;
}

// src/panels/poolpaint.js
var POOL = {
  top: 26,
  bars: 92,
  signs: 17,
  key: 20,
  gap: 4,
  least: 3,
  most: 56,
  axis: 58,
  lines: 2
}, PoolPainter = class {
  /**
   * @param {Pen} pen
   * @param {View} view
   * @param {Bars} at
   * @param {number} width
   */
  constructor(pen, view, at, width) {
    this.pen = pen, this.view = view, this.at = at, this.width = width, this.pool = view.film.scene(view.step).pool, this.common = commonLength(this.pool);
  }
  paint() {
    this._axis(), this._guide(), this._explain(), this.pool.forEach((each, n) => this._bar(each, POOL.axis + n * this.at.pitch));
  }
  _axis() {
    let { pen, at, width } = this, { p } = pen, look = { size: 11, fill: p.muted, align: "right" }, right = POOL.axis - 8;
    pen.line(POOL.axis - 4, at.bottom + 0.5, width - PAD, at.bottom + 0.5, { stroke: p.grey }), pen.text(`${at.base}`, right, at.bottom - 1, look), pen.text("length", right, at.top - 11, look), pen.text("waited", right, at.bottom + 4 + POOL.signs / 2, look), at.wide && pen.text("request", right, at.bottom + 4 + POOL.signs * 1.5, look);
  }
  /**
   * @param {PoolEntry} entry
   * @param {number} x
   */
  _bar({ request, length, waited, chosen: chosen2 }, x) {
    let { pen, at } = this, { p } = pen, w = Math.max(at.pitch - POOL.gap, POOL.least), y = at.y(length), middle = x + w / 2, row = this.view.film.rowOf(this.view.step, request), inside = at.bottom - y > 20 ? at.bottom - 10 : y - 8;
    pen.rect(
      x,
      y,
      w,
      at.bottom - y,
      chosen2 ? { fill: p.blueSoft, stroke: p.blue, width: 1.5 } : { fill: p.greySoft, stroke: p.grey }
    ), row >= 0 && row === this.view.row && pen.rect(x - 2, y - 2, w + 4, at.bottom - y + 4, { stroke: p.ink, width: 1.5, radius: 2 }), at.wide && pen.text(`${length}`, middle, inside, {
      size: 11,
      weight: chosen2 ? 700 : 400,
      align: "center",
      max: w + 3
    }), this._sign(waited, chosen2, x, w), at.wide && pen.text(`${request}`, middle, at.bottom + 4 + POOL.signs * 1.5, {
      size: 11,
      fill: p.muted,
      align: "center"
    });
  }
  /**
   * Chosen, or for how many rounds it has waited: a number, or where there is no room for one a
   * bar.
   * @param {number} waited
   * @param {boolean} chosen
   * @param {number} x
   * @param {number} w
   */
  _sign(waited, chosen2, x, w) {
    let { pen, at } = this, { p } = pen, middle = x + w / 2, y = at.bottom + 4 + POOL.signs / 2;
    if (chosen2)
      return pen.text("\u2713", middle, y, {
        size: at.pitch >= 9 ? 12 : 9,
        weight: 700,
        fill: p.blue,
        align: "center"
      });
    if (at.numbers)
      return pen.text(waited ? `${waited}` : "\xB7", middle, y, {
        size: 11,
        fill: waited ? p.ink : p.muted,
        align: "center"
      });
    waited && pen.rect(x, at.bottom + 4, w, Math.max(waited / at.waited * (POOL.signs - 3), 1.5), {
      fill: p.grey
    });
  }
  // A line at the length that rows share.
  _guide() {
    let { pen, at, width, common } = this, { p } = pen;
    if (!common) return;
    let { length: shown, grouped } = common, y = at.y(shown);
    pen.line(POOL.axis - 4, y, width - PAD, y, { stroke: grouped ? p.blue : p.grey, dash: [4, 3] });
    let look = { size: 11, weight: 700, fill: grouped ? p.blue : p.muted, align: "right" };
    y < at.bottom - 14 && pen.text(`${shown}`, POOL.axis - 8, y, look);
  }
  // What the frame and the line are, and where the bars begin if not at 0.
  _explain() {
    let { pen, at, width, common } = this, { p } = pen, look = { size: 11, fill: p.muted }, y = at.bottom + (at.wide ? 2 : 1) * POOL.signs + 4 + POOL.key / 2, words = `row ${this.view.row}`, x = PAD + 20 + pen.measure(words, look) + 16;
    pen.rect(PAD, y - 6, 14, 12, { stroke: p.ink, width: 1.5, radius: 2 }), pen.text(words, PAD + 20, y, look), common && pen.line(x, y, x + 20, y, { stroke: common.grouped ? p.blue : p.grey, dash: [4, 3] }), common && (x += 26);
    let line = common ? [common.grouped ? "length of the chosen" : "most common length"] : [], foot = at.base ? [`bars begin at ${at.base}`] : [];
    pen.text([...line, ...foot].join(" \xB7 "), x, y, { ...look, max: width - PAD - x });
  }
};

// src/panels/pool.js
var PoolPanel = class {
  static id = "pool";
  /** @param {View} view */
  constructor(view) {
    this.view = view, this._scale = this._scaleOf(
      view.film.json.rounds.flatMap((round) => round.pool.map((each) => each.length))
    );
  }
  /**
   * Lengths at the foot and at the top of the bars: from 0, unless all bars of the run would look
   * alike.
   * @param {number[]} lengths
   */
  _scaleOf(lengths) {
    let longest = lengths.reduce((most, each) => Math.max(most, each), 1), shortest = lengths.reduce((least, each) => Math.min(least, each), longest);
    return { base: shortest > longest * 0.6 ? Math.floor(shortest * 0.9) : 0, longest };
  }
  get _pool() {
    return this.view.film.scene(this.view.step).pool;
  }
  get _chosen() {
    return this._pool.filter((each) => each.chosen);
  }
  empty() {
    return !this._pool.length;
  }
  key() {
    return `${this.view.film.round(this.view.step)} ${this.view.row}`;
  }
  title() {
    let { window: window2 } = this.view.film.json.meta.strategy_options, size = this._pool.length, room = window2 ? ` in a window of ${window2}` : "";
    return `Pool \xB7 ${counted(size, "row")}${room}, ${this._chosen.length} chosen`;
  }
  _sentences() {
    let { film, step } = this.view;
    return `${capital(decisionWords(film, step))}. ${capital(waitWords(this._pool))}.`;
  }
  describe() {
    return `${this.title()}. ${this._sentences()}`;
  }
  table() {
    let rows = this._pool.slice(0, 400).map(({ request, length, waited, chosen: chosen2 }) => {
      let row = this.view.film.rowOf(this.view.step, request);
      return [request, length, chosen2 ? "chosen" : "waits", waited, row < 0 ? "\u2013" : row];
    }), head = ["request", "length", "this round", "times left out before", "row of the batch"];
    return { caption: this._sentences(), head, rows };
  }
  /** @param {number} width */
  height(width) {
    let at = this._bars(width);
    return at.bottom + (at.wide ? 2 : 1) * POOL.signs + POOL.key + 8;
  }
  /**
   * Room for two lines of words at least, so that most rounds have one height.
   * @param {number} width
   */
  _top(width) {
    return Math.max(this._lines(width).length, POOL.lines) * 17 + POOL.top;
  }
  /** @param {number} width */
  _lines(width) {
    return wrapWords(this._sentences(), width - 2 * PAD, { size: 12 });
  }
  /**
   * @param {number} width
   * @returns {Bars}
   */
  _bars(width) {
    let top = this._top(width), { base, longest } = this._scale, pitch = Math.min((width - PAD - POOL.axis) / this._pool.length, POOL.most + POOL.gap), waited = Math.max(...this._pool.map((each) => each.waited)), numbers = pitch >= (waited > 9 ? 18 : 10), most = base ? longest : 2 ** Math.ceil(Math.log2(Math.max(...this._pool.map((each) => each.length)))), y = (length) => top + POOL.bars * (1 - (length - base) / Math.max(most - base, 1));
    return { top, bottom: top + POOL.bars, base, pitch, waited, numbers, wide: pitch >= 20, y };
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    let at = this._bars(width);
    this._lines(width).forEach(
      (line, n) => pen.text(line, PAD, 8 + n * 17, { size: 12, fill: pen.p.ink })
    ), new PoolPainter(pen, this.view, at, width).paint();
  }
  /**
   * @param {number} x
   * @param {number} width
   */
  _at(x, width) {
    let n = Math.floor((x - POOL.axis) / this._bars(width).pitch);
    return this._pool[n] ?? null;
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    let found = this._at(x, width), at = this._bars(width);
    if (!found || y < at.top - 4 || y > at.bottom + 2 * POOL.signs + 4) return null;
    let { request, length, waited, chosen: chosen2 } = found, row = this.view.film.rowOf(this.view.step, request), wait = waited ? `, waited ${counted(waited, "round")} before this one` : "", now = chosen2 ? `chosen, row ${row}` : "waits";
    return {
      row: row < 0 ? null : row,
      slot: null,
      index: null,
      hint: `request ${request}: ${counted(length, "token")}, ${now}${wait}`
    };
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  click(x, y, width) {
    let row = this.hit(x, y, width)?.row;
    row != null && this.view.pick(row);
  }
};

// src/page/figurerun.js
var BETWEEN_CARDS = 12, HEADING = 30, SIDE_BY_SIDE = 860, FigureRun = class {
  /**
   * @param {View} view
   * @param {number} width
   */
  constructor(view, width) {
    let own = this._telling(view);
    for (this.view = view, this.width = width, this.blocks = [
      this._head(),
      this._rail(),
      this._words(),
      this._card(new Stage(view), width, [new Legend(view)])
    ]; own.length > 1 && width >= SIDE_BY_SIDE; )
      this.blocks.push(this._beside(own.splice(0, 2)));
    this.blocks.push(...own.map((panel) => this._card(panel, width)));
    let broken = new InvariantPanel(view);
    broken.items().length && this.blocks.push(this._card(broken, width));
  }
  /**
   * The panels that have something to say at this step: before anything is drafted, there is no
   * verification to show.
   * @param {View} view
   */
  _telling(view) {
    let { film, step, row } = view, panels = [new PoolPanel(view)];
    return maskCells(film, step, row) && panels.unshift(new MaskPanel(view)), film.phase(step) > 0 && panels.unshift(new VerifyPanel(view), new TreePanel(view)), panels.filter((panel) => !panel.empty());
  }
  _head() {
    let { film, step } = this.view, name = runName(film), facts = `${runFacts(film, step).join(" \xB7 ")} \xB7 `, look = { size: 16, weight: 700 }, small = { size: 12.5 }, [beside, wide] = [measureText(name, fontOf(look)) + 12, fontOf(small)], needed = beside + measureText(facts, wide) + measureText(verdictOf(film), wide), [x, y] = needed <= this.width ? [beside, 13] : [0, 33], draw = (pen) => {
      pen.text(name, 0, 12, { ...look, max: this.width });
      let after = x + pen.measure(facts, small), fill = film.violations.length > 0 ? pen.p.red : pen.p.muted;
      pen.text(facts, x, y, { ...small, fill: pen.p.muted, max: this.width - x }), pen.text(verdictOf(film), after, y, { ...small, fill, max: this.width - after });
    };
    return { height: y + 9, draw };
  }
  // Where in the round the step is; a page has buttons there.
  _rail() {
    let { film, step } = this.view, now = film.phase(step), w = this.width / film.phases;
    return { height: 20, draw: (pen) => film.json.phases.forEach((name, phase) => {
      let { p } = pen, look = phase === now ? { weight: 700 } : { fill: p.muted };
      pen.rect(phase * w, 0, w - 4, 3, {
        fill: phase === now ? p.blue : phase < now ? p.draft : p.faint
      }), pen.text(`${phase + 1} ${name}`, phase * w, 13, { size: 12, ...look });
    }) };
  }
  _words() {
    let { phase, words, own } = sentences(this.view), look = { size: 14 }, small = { size: 12.5 }, lines2 = wrapWords(`${phase} ${words}`, this.width, look), more = own ? wrapWords(own, this.width, small) : [], draw = (pen) => {
      lines2.forEach((line, n) => pen.text(line, 0, 10 + 21 * n, look)), more.forEach(
        (line, n) => pen.text(line, 0, 10 + 21 * lines2.length + 18 * n, { ...small, fill: pen.p.muted })
      );
    };
    return { height: 21 * lines2.length + 18 * more.length, draw };
  }
  /**
   * @param {Panel} panel
   * @param {number} width
   * @param {Drawable[]} [under]
   */
  _card(panel, width, under = []) {
    let parts = [panel, ...under], heights = parts.map((each) => Math.ceil(each.height(width))), look = { size: 12.5, weight: 650 }, title = wrapWords(panel.title(), width - 2 * PAD, look), head = HEADING + 17 * (title.length - 1), height = head + heights.reduce((sum, each) => sum + each + 8, 0);
    return { width, height, draw: (pen, tall = height) => {
      pen.rect(0, 0, width, tall, { fill: pen.p.panel, stroke: pen.p.faint, radius: 10 }), title.forEach(
        (line, n) => pen.text(line, PAD, 17 + 17 * n, { ...look, fill: pen.p.muted, max: width - 2 * PAD })
      );
      let y = head;
      parts.forEach((each, n) => {
        pen.shifted(0, y, () => each.draw(pen, width, heights[n])), y += heights[n] + 8;
      });
    } };
  }
  /**
   * Two panels in one line, divided where they are lowest.
   * @param {Panel[]} panels
   */
  _beside(panels) {
    let room = this.width - BETWEEN_CARDS, cards = [0.5, 0.58, 0.66].map((share) => [
      this._card(panels[0], room * share),
      this._card(panels[1], room * (1 - share))
    ]).reduce((best, each) => tallest(each) < tallest(best) ? each : best), height = tallest(cards);
    return { height, draw: (pen, tall = height) => {
      cards[0].draw(pen, tall), pen.shifted(cards[0].width + BETWEEN_CARDS, 0, () => cards[1].draw(pen, tall));
    } };
  }
};
function tallest(blocks) {
  return Math.max(...blocks.map((block) => block?.height ?? 0));
}

// src/page/figure.js
var MARGIN = 16, TWO_RUNS = 960, Figure = class {
  /**
   * @param {Film[]} films
   * @param {FigureSettings} at
   * @param {Palette} palette
   */
  constructor(films, { step, row, width }, palette) {
    let comparison = films.length > 1 ? new Comparison(films[0], films[1]) : null;
    this.runs = films.map((film, number) => {
      let at = comparison ? comparison.stepOf(number, Math.min(step, comparison.clocks - 1)) : Math.min(step, film.steps - 1);
      return new FigureRun(
        this._view(films, number, at, row, palette, comparison),
        this._room(films.length, width)
      );
    }), this.width = width, this.palette = palette, this.lines = this._lines(), this.height = 2 * MARGIN - BETWEEN_CARDS + this.lines.reduce((sum, line) => sum + tallest(line) + BETWEEN_CARDS, 0);
  }
  /**
   * px for a run
   * @param {number} runs
   * @param {number} width
   */
  _room(runs, width) {
    let room = width - 2 * MARGIN;
    return runs > 1 && width >= TWO_RUNS ? (room - BETWEEN_CARDS) / 2 : room;
  }
  // Blocks that stand side by side, from the top.
  _lines() {
    let [first, second] = this.runs.map((run) => run.blocks);
    return !second || this.width < TWO_RUNS ? this.runs.flatMap((run) => run.blocks.map((block) => [block])) : Array.from({ length: Math.max(first.length, second.length) }, (_, n) => [
      first[n],
      second[n]
    ]);
  }
  /**
   * @param {Film[]} films
   * @param {number} number
   * @param {number} step
   * @param {number} row
   * @param {Palette} palette
   * @param {Comparison | null} comparison
   * @returns {View}
   */
  _view(films, number, step, row, palette, comparison) {
    let film = films[number], request = films[0].rows(comparison ? comparison.stepOf(0, step) : step)[row]?.request, own = number ? film.rowOf(step, request) : row, rows = film.rows(step).length;
    return {
      film,
      step,
      row: Math.max(Math.min(own < 0 ? row : own, rows - 1), 0),
      hover: null,
      palette,
      progress: 1,
      zoom: null,
      pan: 0,
      tall: null,
      room: null,
      turn: 0,
      other: comparison ? films[1 - number] : null,
      differs: (request2, index) => comparison?.differs(request2, index) ?? !1,
      pick() {
      },
      point() {
      },
      go() {
      }
    };
  }
  /** @param {Pen} pen */
  draw(pen) {
    pen.rect(0, 0, this.width, this.height, { fill: this.palette.page });
    let y = MARGIN;
    for (let line of this.lines) {
      let tall = tallest(line);
      line.forEach((block, n) => {
        block && pen.shifted(
          MARGIN + n * (this.runs[0].width + BETWEEN_CARDS),
          y,
          () => block.draw(pen, tall)
        );
      }), y += tall + BETWEEN_CARDS;
    }
  }
  svg() {
    let pen = new SvgPen(this.palette), { film, step } = this.runs[0].view;
    return this.draw(pen), pen.svg(
      this.width,
      this.height,
      `${runName(film)}, ${runFacts(film, step).join(", ")}: ${film.stage(step).words}`
    );
  }
  /**
   * PNG in base64
   * @param {number} scale
   */
  png(scale) {
    let canvas = element("canvas", {
      width: Math.round(this.width * scale),
      height: Math.round(this.height * scale)
    }), context = contextOf(canvas, { alpha: !1 });
    context.fillStyle = this.palette.page, context.fillRect(0, 0, canvas.width, canvas.height), context.scale(scale, scale), this.draw(new CanvasPen(this.palette, context));
    let [head, data] = canvas.toDataURL("image/png").split(",");
    if (head.startsWith("data:image/png") && data) return data;
    throw new Error(
      `${canvas.width} \xD7 ${canvas.height} pixels are too many; choose a smaller width or scale`
    );
  }
};
function base64(text) {
  return btoa(
    Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("")
  );
}
function drawFigure(films, settings, place) {
  let root = element("div", { class: "specviz", "data-theme": settings.theme, hidden: !0 });
  place.append(root);
  let figure = new Figure(films, settings, readPalette(root));
  return root.remove(), settings.format === "svg" ? base64(figure.svg()) : figure.png(settings.scale);
}

// src/draw/theme.js
function darkPage() {
  let { body, documentElement } = document, kind = body.dataset.vscodeThemeKind;
  return body.dataset.jpThemeLight !== void 0 ? body.dataset.jpThemeLight === "false" : kind ? kind.includes("dark") || kind === "vscode-high-contrast" : body.classList.contains("vscode-dark") ? !0 : documentElement.hasAttribute("theme") ? documentElement.getAttribute("theme") === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
function themeNamed(wanted) {
  return wanted === "light" || wanted === "dark" ? wanted : darkPage() ? "dark" : "light";
}
function watchTheme(changed, signal) {
  let observer = new MutationObserver(changed), watched = {
    attributes: !0,
    attributeFilter: ["class", "theme", "data-jp-theme-light", "data-vscode-theme-kind"]
  };
  for (let node of [document.body, document.documentElement]) observer.observe(node, watched);
  signal.addEventListener("abort", () => observer.disconnect());
  for (let query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"])
    matchMedia(query).addEventListener("change", changed, { signal });
}

// src/page/ahead.js
var Ahead = class {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell, this.rest = [], this.idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 50));
  }
  // To be called whenever something else is shown; what was begun for that before is given up.
  plan() {
    let { runs, ends, clock, clocks, way } = this.shell, to = clock + way, rest = runs.flatMap((run) => run.sections), work = () => {
      this.rest !== rest || !rest.length || ends.signal.aborted || (this._asIfAt(to, () => rest.shift()?.prepare()), this.idle.call(window, work));
    };
    this.rest = rest, to >= 0 && to < clocks && runs.every((run) => run.view.progress === 1) && window.OffscreenCanvas && this.idle.call(window, work);
  }
  /**
   * Calls `draw` with the runs' views as they will be once the reader goes there.
   * @param {number} clock
   * @param {() => void} draw
   */
  _asIfAt(clock, draw) {
    let { shell } = this, { request, missing } = shell, views = shell.runs.map((run) => ({ ...run.view }));
    try {
      shell.move(clock, clock === shell.clock + 1), draw();
    } finally {
      shell.runs.forEach((run, n) => {
        Object.assign(run.view, views[n]), run.turnLens();
      }), Object.assign(shell, { request, missing });
    }
  }
};

// src/page/jumps.js
function jump(shell, what, direction) {
  let clock = jumpTarget(shell, what, direction);
  clock !== null && shell.go(clock);
}
function jumpToDifference(shell) {
  let first = shell.comparison?.first;
  first && (shell.goTo(shell.runs[0], first.step), shell.pick(first.request));
}
function jumpTarget(shell, what, direction) {
  let clocks = shell.runs.map((run) => targetIn(shell, run, what, direction)).filter((clock) => clock !== void 0);
  return clocks.length ? direction > 0 ? Math.min(...clocks) : Math.max(...clocks) : null;
}
function targetIn(shell, run, what, direction) {
  let clocks = run.film.points(what).map((step) => shell.clockOf(run, step));
  return direction > 0 ? clocks.find((clock) => clock > shell.clock) : clocks.findLast((clock) => clock < shell.clock);
}

// src/page/player.js
var SPEEDS = [0.5, 1, 2, 4, 8], Player = class {
  /** @type {number | undefined} */
  timer;
  playing = !1;
  speed = 1;
  // a number in SPEEDS
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
  }
  /** @param {boolean} on */
  play(on) {
    let { shell } = this;
    clearInterval(this.timer), this.playing = on && shell.clocks > 1, this.playing && shell.clock === shell.clocks - 1 && shell.go(0), this.playing && (this.timer = setInterval(() => this._tick(), 1e3 / SPEEDS[this.speed])), shell.controls.updatePlay();
  }
  toggle() {
    this.play(!this.playing);
  }
  /** @param {number} number */
  setSpeed(number) {
    this.speed = Math.min(Math.max(number, 0), SPEEDS.length - 1), this.play(this.playing);
  }
  _tick() {
    let { shell } = this;
    shell.clock < shell.clocks - 1 && shell.go(shell.clock + 1), shell.clock === shell.clocks - 1 && this.play(!1);
  }
};

// src/page/rail.js
var Rail = class {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
    let names = shell.runs[0].film.json.phases, go = (phase) => () => shell.go(shell.clock - shell.clock % shell.phases + phase);
    this.times = names.map(() => element("span", { class: "sv-ms" })), this.phases = names.map((name, phase) => {
      let number = element(
        "span",
        { class: "sv-number", "aria-hidden": "true" },
        String(phase + 1)
      ), word = element("span", { class: "sv-phase" }, name);
      return element(
        "button",
        { type: "button", on: { click: go(phase) } },
        number,
        word,
        this.times[phase]
      );
    }), this.root = element(
      "div",
      { class: "sv-rail", role: "group", "aria-label": "phases of the round" },
      ...this.phases
    );
  }
  /**
   * @param {number} now
   * @param {number[]} ms
   */
  update(now, ms) {
    let { comparison, runs } = this.shell, untimed = comparison || runs[0].film.json.gaps?.time;
    this.phases.forEach((button, phase) => {
      phase === now ? setAttribute(button, "aria-current", "step") : button.removeAttribute("aria-current"), button.classList.toggle("sv-past", phase < now), setText(this.times[phase], untimed ? "" : milliseconds(ms[phase]));
    });
  }
};

// src/page/controls.js
var JUMPS = {
  rejection: "rejection",
  full: "full acceptance",
  violation: "violation",
  eos: "EOS"
}, Controls = class {
  /** @type {HTMLElement} */
  root;
  /** @type {HTMLElement} */
  facts;
  /** @type {HTMLSelectElement} */
  choice;
  /** @type {HTMLElement} */
  before;
  /** @type {HTMLElement} */
  after;
  /** @type {HTMLSelectElement} */
  row;
  /** @type {HTMLElement} */
  play;
  /** @type {HTMLElement[]} */
  back;
  /** @type {HTMLElement[]} */
  ahead;
  /** @type {HTMLSelectElement} */
  speed;
  /** @type {HTMLElement[]} */
  ways = [];
  /** @type {HTMLElement[]} */
  coordinates = [];
  /** @type {HTMLElement} */
  whole;
  /** @type {string | undefined} */
  _rowsKey;
  /** @type {boolean | undefined} */
  _byTokens;
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell, this.what = "rejection", this.rail = new Rail(shell);
    let steps = element("div", { class: "sv-steps" }, this._transport(), this.rail.root);
    this.root = element("div", { class: "sv-top" }, this._bar(), steps), this.two = shell.comparison ? [this._two()] : [];
  }
  // -- making
  _bar() {
    let [first] = this.shell.runs, alone = this.shell.comparison === null;
    this.facts = element("span", { class: "sv-facts" });
    let title = element("h2", {}, alone ? runName(first.film) : "two runs of the same prompts"), name = element(
      "div",
      { class: "sv-name" },
      title,
      this.facts,
      ...alone ? [badge(first.film)] : []
    );
    return element(
      "div",
      { class: "sv-bar" },
      name,
      element("div", { class: "sv-tools" }, this._jumps(), this._rows(), this._views())
    );
  }
  _jumps() {
    let go = (direction) => () => jump(this.shell, this.what, direction), change = () => {
      this.what = this.choice.value, this.update();
    }, options = Object.entries(JUMPS).map(
      ([value, words]) => element("option", { value }, words)
    );
    return this.choice = element(
      "select",
      { "aria-label": "jump to", title: "r f v e, with Shift backwards", on: { change } },
      ...options
    ), this.before = iconButton("previous", "previous of these", null, go(-1)), this.after = iconButton("next", "next of these", null, go(1)), group("jump to", this.before, this.choice, this.after);
  }
  _rows() {
    let change = () => this.shell.pickBy(this.row.selectedIndex - this.shell.runs[0].view.row);
    return this.row = element("select", {
      "aria-label": "row",
      title: "the chosen row (\u2191 and \u2193)",
      on: { change }
    }), this.row;
  }
  /** In the heading of the batch: its coordinate, and how wide its slots are. */
  zooms() {
    let { shell } = this, zoom = (direction) => () => shell.zoom(direction), minus = iconButton("minus", "narrower slots", "\u2212", zoom(-1)), fit2 = iconButton("fit", "slots as wide as they fit", "0", zoom(0)), plus = iconButton("plus", "wider slots", "+", zoom(1));
    return this.coordinates = ["slots", "positions"].map((words, n) => element("button", { type: "button", class: "sv-small", title: "c", on: { click: () => shell.turnTo(n) } }, words)), [group(null, ...this.coordinates), group(null, minus, fit2, plus)];
  }
  _views() {
    let { shell } = this, button = (name, label, words, keys, click) => {
      let title = `${label} (${keys})`, attributes2 = {
        type: "button",
        class: `sv-icon sv-${name}`,
        "aria-label": label,
        title
      };
      return element("button", { ...attributes2, on: { click } }, words);
    };
    return this.whole = button("whole", "whole map", "map", "h", () => shell.screen.toggleMap()), group(
      null,
      this.shell.tour.button,
      this.whole,
      iconButton("full", "full screen", "f", () => shell.screen.toggleFull()),
      button("help-keys", "help: keys", "?", "?", () => shell.help.open())
    );
  }
  _transport() {
    let { shell } = this, by = (steps) => () => shell.go(shell.clock + steps);
    this.play = iconButton("play", "play", null, () => shell.player.toggle()), this.play.classList.add("sv-play"), this.back = [
      iconButton("first", "first step", "Home", () => shell.go(0)),
      iconButton("back", "previous round", "Shift \u2190", by(-shell.phases)),
      iconButton("previous", "previous phase", "\u2190", by(-1))
    ], this.ahead = [
      iconButton("next", "next phase", "\u2192", by(1)),
      iconButton("ahead", "next round", "Shift \u2192", by(shell.phases)),
      iconButton("last", "last step", "End", () => shell.go(shell.clocks - 1))
    ];
    let { back, play, ahead } = this;
    return element("div", { class: "sv-buttons" }, ...back, play, ...ahead, this._speed());
  }
  _speed() {
    let change = () => this.shell.player.setSpeed(this.speed.selectedIndex), label = "speed, phases a second", options = SPEEDS.map((each) => element("option", {}, `${each} / s`));
    return this.speed = element(
      "select",
      { "aria-label": label, title: `${label} ([ and ])`, on: { change } },
      ...options
    ), this.speed;
  }
  _two() {
    let comparison = (
      /** @type {Comparison} */
      this.shell.comparison
    ), set = (byTokens) => () => this.shell.setByTokens(byTokens), button = { type: "button", class: "sv-small" }, way = (words2, byTokens) => element("button", { ...button, title: "m", on: { click: set(byTokens) } }, words2);
    this.ways = [way("round", !1), way("committed tokens", !0)];
    let click = () => jumpToDifference(this.shell), go = element(
      "button",
      { ...button, title: "d", hidden: !comparison.first, on: { click } },
      "go there"
    ), words = element("span", { class: "sv-difference" }, comparison.words);
    return element("div", { class: "sv-two" }, group("in step by", ...this.ways), words, go);
  }
  // -- showing
  update() {
    let { shell } = this, [{ film, view }] = shell.runs, { clock, clocks } = shell;
    shell.comparison || setText(this.facts, runFacts(film, view.step).join(" \xB7 ")), this.back.forEach((button) => setUsable(button, clock > 0)), this.ahead.forEach((button) => setUsable(button, clock < clocks - 1)), setUsable(this.before, jumpTarget(shell, this.what, -1) !== null), setUsable(this.after, jumpTarget(shell, this.what, 1) !== null), this.rail.update(clock % shell.phases, film.scene(view.step).ms), this._updateRows(film.rows(view.step), view.row), this.coordinates.forEach(
      (button, n) => setAttribute(button, "aria-pressed", String(n === shell.turned))
    ), setAttribute(this.whole, "aria-pressed", String(!shell.map.low)), this._updateWay(shell.comparison?.byTokens ?? !1);
  }
  /**
   * @param {RowEntry[]} rows
   * @param {number} chosen
   */
  _updateRows(rows, chosen2) {
    let names = rows.map((row, number) => `row ${number} \xB7 request ${row.request}`), key = names.join();
    key !== this._rowsKey && this.row.replaceChildren(...names.map((name) => element("option", {}, name))), this._rowsKey = key, this.row.selectedIndex = chosen2;
  }
  /** @param {boolean} byTokens */
  _updateWay(byTokens) {
    byTokens !== this._byTokens && (this._byTokens = byTokens, this.ways.forEach(
      (button, n) => button.setAttribute("aria-pressed", String(byTokens === (n === 1)))
    ));
  }
  updatePlay() {
    let { playing, speed } = this.shell.player, words = playing ? "pause" : "play";
    this.play.replaceChildren(icon(words)), setAttribute(this.play, "aria-label", words), setAttribute(this.play, "title", `${words} (Space)`), this.speed.selectedIndex = speed;
  }
};
function group(label, ...parts) {
  let shown = label ? [element("span", { class: "sv-label", "aria-hidden": "true" }, label)] : [];
  return element(
    "div",
    { class: "sv-group", role: label && "group", "aria-label": label },
    ...shown,
    ...parts
  );
}

// src/page/frames.js
var Frames = class {
  /** @param {(sections: Section[]) => void} draw */
  constructor(draw) {
    this.draw = draw, this.dirty = /* @__PURE__ */ new Set(), this.coming = 0, this.drawn = 0;
  }
  /** @param {Section} section */
  touch(section) {
    this.dirty.add(section), this.coming ||= requestAnimationFrame(() => this.paint());
  }
  // For what a reader asked for: the work is done by the time the next frame begins. Of what comes
  // faster than frames do, such as from a slider that is dragged, the rest is left to that frame.
  paintAtOnce() {
    this.drawn || (this.drawn = requestAnimationFrame(() => {
      this.drawn = 0;
    }), this.paint());
  }
  paint() {
    this.stop();
    let sections = [...this.dirty];
    this.dirty.clear(), this.draw(sections);
  }
  stop() {
    cancelAnimationFrame(this.coming), this.coming = 0;
  }
};

// src/page/keys.js
var KEYS = [
  [
    "next, previous phase",
    ["\u2192", "ArrowRight", (shell) => shell.go(shell.clock + 1)],
    ["\u2190", "ArrowLeft", (shell) => shell.go(shell.clock - 1)]
  ],
  [
    "next, previous round",
    ["Shift \u2192", "Shift+ArrowRight", (shell) => shell.go(shell.clock + shell.phases)],
    ["Shift \u2190", "Shift+ArrowLeft", (shell) => shell.go(shell.clock - shell.phases)]
  ],
  [
    "first, last step",
    ["Home", "Home", (shell) => shell.go(0)],
    ["End", "End", (shell) => shell.go(shell.clocks - 1)]
  ],
  ["play, pause", ["Space", " ", (shell) => shell.player.toggle()]],
  [
    "slower, faster",
    ["[", "[", ({ player }) => player.setSpeed(player.speed - 1)],
    ["]", "]", ({ player }) => player.setSpeed(player.speed + 1)]
  ],
  [
    "next, previous row",
    ["\u2193", "ArrowDown", (shell) => shell.pickBy(1)],
    ["\u2191", "ArrowUp", (shell) => shell.pickBy(-1)]
  ],
  ["all panels as tables, or as pictures", ["t", "t", (shell) => shell.showTables()]],
  [
    "next, previous rejection",
    ["r", "r", (shell) => jump(shell, "rejection", 1)],
    ["Shift r", "Shift+R", (shell) => jump(shell, "rejection", -1)]
  ],
  [
    "\u2026 full acceptance: all drafts accepted",
    ["a", "a", (shell) => jump(shell, "full", 1)],
    ["Shift a", "Shift+A", (shell) => jump(shell, "full", -1)]
  ],
  [
    "\u2026 violation",
    ["v", "v", (shell) => jump(shell, "violation", 1)],
    ["Shift v", "Shift+V", (shell) => jump(shell, "violation", -1)]
  ],
  [
    "\u2026 end of a text (EOS)",
    ["e", "e", (shell) => jump(shell, "eos", 1)],
    ["Shift e", "Shift+E", (shell) => jump(shell, "eos", -1)]
  ],
  [
    "slots wider, narrower, as they fit",
    ["+", "+", (shell) => shell.zoom(1)],
    ["\u2212", "-", (shell) => shell.zoom(-1)],
    ["0", "0", (shell) => shell.zoom(0)]
  ],
  [
    "to earlier, later slots",
    [",", ",", (shell) => shell.slide(-4)],
    [".", ".", (shell) => shell.slide(4)]
  ],
  [
    "select rounds: from here, and to here",
    ["s", "s", (shell) => shell.map.mark()],
    ["Shift s", "Shift+S", (shell) => shell.map.clear()]
  ],
  ["map by rounds, or by time", ["x", "x", (shell) => shell.map.setByTime(!shell.map.byTime)]],
  ["full screen", ["f", "f", (shell) => {
    shell.screen.toggleFull();
  }]],
  ["presentation size", ["p", "p", (shell) => shell.screen.togglePresent()]],
  ["whole map, or low lanes", ["h", "h", (shell) => shell.screen.toggleMap()]],
  ["rows by slots, or by positions", ["c", "c", (shell) => shell.turnTo(1 - shell.turned)]],
  [
    "lens: pin the panel that is shown, follow the phase again",
    ["l", "l", (shell) => shell.pin(shell.pinned ? null : shell.runs[0].lens.shown)]
  ],
  ["tour of a minute", ["g", "g", (shell) => shell.tour.toggle()]],
  ["this list", ["?", "?", (shell) => shell.help.open()]],
  ["first difference of the two runs", ["d", "d", jumpToDifference], !0],
  [
    "in step by round, or by committed tokens",
    ["m", "m", (shell) => shell.setByTokens(!shell.comparison?.byTokens)],
    !0
  ]
];
function keysFor(compared) {
  return KEYS.filter((entry) => compared || entry.at(-1) !== !0);
}
function pressesOf([, ...presses]) {
  return presses.filter((press) => press !== !0);
}
function actionOf(event, compared) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  let target = (
    /** @type {Element} */
    event.target
  );
  if (target.closest("select, dialog") || event.key === " " && target.closest("button")) return null;
  let sign = event.key.length === 1 && !/[a-z]/i.test(event.key), key = event.key === "=" ? "+" : event.key, pressed = event.shiftKey && !sign ? `Shift+${key}` : key;
  return keysFor(compared).flatMap(pressesOf).find(([, name]) => name === pressed)?.[2] ?? null;
}
var Help = class {
  /**
   * @param {boolean} compared
   */
  constructor(compared) {
    let name = `sv-${crypto.getRandomValues(new Uint32Array(1))[0]}`, close = element(
      "button",
      { type: "button", class: "sv-small", on: { click: () => this.root.close() } },
      "close"
    ), pointer = "With the pointer: a click on a row chooses it; what lies under the pointer lights up in all panels; in the map of the run a click leads to a round of a request, a drag selects rounds, a drag along its axis goes through the steps, and the wheel zooms once the map has the focus, as do + \u2212 0 and , . there; the map of the whole cache slides the batch.", head = element("div", { class: "sv-head" }, element("h2", { id: name }, "Keys"), close), list = element("dl", {}, ...keysFor(compared).map((entry) => this._line(entry))), attributes2 = { class: "sv-help", "aria-labelledby": name, on: { click: (event) => event.target === this.root && this.root.close() } };
    this.root = element("dialog", attributes2, head, list, element("p", {}, pointer));
  }
  /** @param {(typeof KEYS)[number]} entry */
  _line(entry) {
    let written = pressesOf(entry).map(
      ([keys]) => element("span", {}, ...keys.split(" ").map((key) => element("kbd", {}, key)))
    );
    return element("div", {}, element("dt", {}, ...written), element("dd", {}, entry[0]));
  }
  open() {
    let before = (
      /** @type {HTMLElement | null} */
      document.activeElement
    );
    this.root.addEventListener("close", () => before?.focus({ preventScroll: !0 }), {
      once: !0
    }), this.root.showModal();
  }
};

// src/page/looks.js
var Looks = class {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell, this._read();
  }
  /** @param {string | null} [forced] */
  _read(forced = null) {
    let { shell } = this;
    shell.root.dataset.theme = themeNamed(forced ?? shell.model.get("theme")), shell.palette = readPalette(shell.root);
    for (let { view } of shell.runs) view.palette = shell.palette;
  }
  changed() {
    this._read(), this.shell.touchAll();
  }
  /** @param {string | null} theme */
  print(theme) {
    this._read(theme), this.shell.touchAll(), this.shell.frames.paint();
  }
};

// src/map/layout.js
var MapLayout = class {
  /**
   * @param {number} width
   * @param {{ count: number, first: number, timed: boolean, copies: boolean }[]} runs
   * @param {boolean} [low]
   */
  constructor(width, runs, low = !1) {
    this.width = width, this.room = Math.max(width - 66 - 16, 40), this.two = runs.length > 1;
    let [lanes2, lowest] = this.two ? [128, 2] : [192, 3];
    this.lanesRoom = low && !this.two ? 32 : lanes2, this.pitch = pitchOf(Math.max(...runs.map(({ count }) => count), 1), this.lanesRoom, lowest);
    let y = 4;
    this.groups = runs.map((run) => {
      let group2 = this._group(run, y);
      return y = group2.bottom, group2;
    }), this.lead = this.two ? y + 2 : null, this.ruler = y + (this.two ? 32 : 0), this.height = this.ruler + 19;
  }
  /**
   * @param {{ count: number, first: number, timed: boolean, copies: boolean }} run
   * @param {number} y
   * @returns {Group}
   */
  _group({ count, first, timed, copies }, y) {
    let most = Math.floor(this.lanesRoom / this.pitch), shown = Math.min(count, most), lanes2 = y + (this.two ? 18 : 0), time = lanes2 + shown * this.pitch + 4, bytes = time + (timed ? 22 : 0);
    return {
      name: y,
      lanes: lanes2,
      pitch: this.pitch,
      count,
      shown,
      first: Math.min(Math.max(first, 0), count - shown),
      time,
      bytes,
      bottom: bytes + (copies ? 8 : 0) + (this.two ? 4 : 0)
    };
  }
  get heights() {
    return { time: 20, bytes: 6, lead: 26, ruler: 19 };
  }
  /**
   * The top of a request's lane; null where it is not seen.
   * @param {number} run
   * @param {number} request
   */
  laneY(run, request) {
    let { lanes: lanes2, pitch, first, shown } = this.groups[run], place = request - first;
    return place >= 0 && place < shown ? lanes2 + place * pitch : null;
  }
  /**
   * @param {number} y
   * @returns {Spot}
   */
  under(y) {
    if (y >= this.ruler) return { part: "ruler", run: 0, request: null };
    if (this.lead !== null && y >= this.lead - 2) return { part: "lead", run: 0, request: null };
    let run = this.groups.findIndex(({ name, bottom }) => y >= name && y < bottom);
    if (run < 0) return { part: "none", run: 0, request: null };
    let { lanes: lanes2, pitch, first, shown } = this.groups[run], place = Math.floor((y - lanes2) / pitch);
    return place >= 0 && place < shown ? { part: "lane", run, request: first + place } : { part: y >= lanes2 ? "time" : "none", run, request: null };
  }
  /**
   * The first lane to be seen, so that a request's lane is.
   * @param {number} run
   * @param {number} request
   */
  firstFor(run, request) {
    let { first, shown } = this.groups[run];
    return request < first ? request : request >= first + shown ? request - shown + 1 : first;
  }
};
function pitchOf(count, room, lowest) {
  return Math.min(Math.max(Math.floor(room / count), lowest), 11);
}
function blockIn(pitch) {
  let gap = pitch >= 8 ? 3 : pitch >= 3 ? 1 : 0, h = pitch - gap;
  return { h, low: Math.max(Math.round(h * 0.38), 1) };
}

// src/map/lanepaint.js
var NARROWEST = 3, SEPARATE = 5, LanePainter2 = class {
  /**
   * parts: the round in which each request's text parts from the other run's, -1 for none
   * @param {Pen} pen
   * @param {{ axis: Axis, layout: MapLayout, tally: Tally, run: number, parts: number[] }} of
   */
  constructor(pen, { axis, layout, tally, run, parts }) {
    this.pen = pen, this.axis = axis, this.layout = layout, this.tally = tally, this.run = run, this.parts = parts, this.group = layout.groups[run], this.block = blockIn(this.group.pitch), this.boxes = /* @__PURE__ */ new Map();
  }
  paint() {
    let { pen, group: group2, layout } = this, last = group2.first + group2.shown;
    for (let request = group2.first; request < last; request++) this._lane(request);
    let [top, height] = [group2.lanes - 2, group2.shown * group2.pitch + 4];
    pen.clip(66, top, layout.room, height, () => {
      this._waits();
      for (let [fill, boxes] of this.boxes)
        for (let [x, y, w, h] of boxes) pen.rect(x, y, w, h, { fill });
    }), pen.clip(58, top, layout.room + 8 + 16, height, () => {
      for (let request = group2.first; request < last; request++) this._signs(request);
      this._first();
    });
  }
  /** @param {number} round */
  _x(round) {
    return 66 + this.axis.x(this.axis.start(this.tally, round), this.layout.room);
  }
  /** @param {number} request */
  _y(request) {
    return this.group.lanes + (request - this.group.first) * this.group.pitch;
  }
  /**
   * The rounds that are seen, with one more on each side.
   * @returns {Range}
   */
  get _seen() {
    let { axis, tally } = this, [first, stop] = axis.roundsIn(tally, [axis.from, axis.to]);
    return [first - 1, stop + 1];
  }
  /**
   * @param {string} fill
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   */
  _box(fill, x, y, w, h) {
    if (w <= 0) return;
    let boxes = this.boxes.get(fill);
    boxes ? boxes.push([x, y, w, h]) : this.boxes.set(fill, [[x, y, w, h]]);
  }
  /**
   * Neighbouring rounds that would be too narrow share a block.
   * @param {number} request
   */
  _lane(request) {
    let [first, stop] = this._seen, some = [];
    for (let block of this.tally.lanes[request]) {
      if (block.round < first || block.round >= stop) continue;
      let begun = some[0], follows = begun && some[some.length - 1].round === block.round - 1;
      begun && (!follows || this._x(block.round) - this._x(begun.round) >= NARROWEST) && (this._blocks(some, request), some = []), some.push(block);
    }
    some.length && this._blocks(some, request);
  }
  /**
   * @param {Block[]} some
   * @param {number} request
   */
  _blocks(some, request) {
    let { p } = this.pen, { h, low } = this.block, x = this._x(some[0].round), next = this._x(some[some.length - 1].round + 1), room = next - x - (next - x >= SEPARATE ? 1 : 0), y = this._y(request), [accepted, own, thrown] = ["accepted", "own", "thrown"].map(
      (name) => some.reduce((sum, block) => sum + block[
        /** @type {"own"} */
        name
      ], 0)
    ), all = accepted + own + thrown;
    if (!all) {
      this._box(p.faint, x, y + h / 2 - 0.5, room, 1);
      return;
    }
    let [a, b] = [room * accepted / all, room * own / all];
    this._box(p.green, x, y, a, h), this._box(p.bonus, x + a, y, b, h), this._box(p.stale, x + a + b, y + h - low, room - a - b, low), this._under(some, x, y + h, next - x);
  }
  /**
   * Under a block, where lanes are high enough: K/V was copied. Over it: something is violated.
   * @param {Block[]} some
   * @param {number} x
   * @param {number} y
   * @param {number} w
   */
  _under(some, x, y, w) {
    let { tally, group: group2, block } = this, { p } = this.pen, any = (name) => some.some((each) => tally.has(each, name)), open = group2.pitch >= 8;
    open && any("moved") && this._box(p.blue, x, y + 0.5, w, 1.5), any("violation") && this._box(p.red, x, y - block.h, w, open ? 1.5 : 1);
  }
  _waits() {
    let { pen, tally, group: group2, block, layout } = this, [first, stop] = this._seen, last = group2.first + group2.shown;
    for (let request = group2.first; request < last; request++)
      for (let [from, to] of tally.waits[request]) {
        if (to < first || from > stop) continue;
        let y = Math.floor(this._y(request) + block.h / 2) + 0.5, left = Math.max(this._x(from), 66), right = Math.min(this._x(to), 66 + layout.room);
        pen.line(left, y, right, y, { stroke: pen.p.grey, dash: [1, 3] });
      }
  }
  /** @param {number} request */
  _signs(request) {
    let { tally } = this, [first, stop] = this._seen, y = this._y(request), blocks = tally.lanes[request];
    for (let block of [blocks[0], blocks[blocks.length - 1]])
      !block || block.round < first || block.round >= stop || this._entry(block, y);
    let ended = blocks.findLast((block) => this._ended(block));
    ended && ended.round >= first && ended.round < stop && this._end(ended, y), this._parting(request, y);
  }
  /** @param {Block} block */
  _ended(block) {
    return ["eos", "budget", "stopped"].some((name) => this.tally.has(block, name));
  }
  /**
   * @param {Block} block
   * @param {number} y
   */
  _entry(block, y) {
    let { pen, tally } = this, x = this._x(block.round);
    tally.has(block, "refill") && this._sees(x) && drawEntry(pen, x, y, this.block.h);
  }
  /**
   * @param {Block} block
   * @param {number} y
   */
  _end(block, y) {
    let { tally } = this, kind = ["eos", "budget", "stopped"].find((name) => tally.has(block, name)) ?? "", x = this._x(block.round + 1);
    this._sees(x) && drawEnd(this.pen, kind, x, y, this.block.h);
  }
  /** @param {number} x */
  _sees(x) {
    return x > 65 && x < 66 + this.layout.room + 1;
  }
  /**
   * Where a text parts from the other run's, and from there on.
   * @param {number} request
   * @param {number} y
   */
  _parting(request, y) {
    let round = this.parts[request] ?? -1;
    if (round < 0) return;
    let { pen, block, group: group2, tally } = this, [x, end] = [this._x(round), this._x((tally.lanes[request].at(-1)?.round ?? 0) + 1)], open = group2.pitch >= 8, left = Math.max(x, 66), right = Math.min(end, 66 + this.layout.room);
    if (right <= left || (pen.rect(left, y + block.h + 0.5, right - left, open ? 1.5 : 1, { fill: pen.p.ink }), x < 65)) return;
    let at = Math.max(x, 71);
    open ? drawSign(pen, "\u2260", at, y + block.h / 2, pen.p.ink) : pen.rect(x, y, 2, block.h + 1, { fill: pen.p.ink });
  }
  _first() {
    let { first } = this.tally, { pen, group: group2, block } = this;
    if (!first) return;
    let place = first.request - group2.first;
    if (place < 0 || place >= group2.shown) return;
    let middle = (this._x(first.round) + this._x(first.round + 1)) / 2;
    this._sees(middle) && drawSign(pen, "\u25B2", middle, this._y(first.request) + block.h / 2, pen.p.red);
  }
};
function drawEntry(pen, x, y, h) {
  let middle = Math.floor(y + h / 2) + 0.5, look = { stroke: pen.p.blue, width: h >= 5 ? 1.25 : 0.5, arrow: h >= 5 };
  pen.line(x - (h >= 5 ? 7 : 4), middle, x - 1, middle, look);
}
function drawEnd(pen, kind, x, y, h) {
  let { p } = pen, size = Math.min(h, 6), top = y + (h - size) / 2;
  if (kind === "eos") pen.rect(x + 1, top, size, size, { fill: p.ink });
  else if (kind === "budget") pen.rect(x + 1, y, 1.5, h, { fill: p.ink });
  else
    for (let [from, to] of [
      [top, top + size],
      [top + size, top]
    ])
      pen.line(x + 2, from, x + 2 + size, to, { stroke: p.ink, width: 1.25 });
}
function drawSign(pen, sign, x, y, fill) {
  pen.rect(x - 5.5, y - 5.5, 11, 11, { fill: pen.p.panel, radius: 3 }), pen.text(sign, x, y + 0.5, { size: 11, weight: 700, fill, align: "center" });
}

// src/map/maplegend.js
var LINE2 = 17, SAMPLE = 16, MapLegend = class {
  /** @param {RunMap} map */
  constructor(map) {
    let { tallies, parts } = map, any = (name) => tallies.some(
      (tally) => tally.lanes.some((blocks) => blocks.some((block) => tally.has(block, name)))
    ), waits = tallies.some((tally) => tally.waits.some((all2) => all2.length)), all = [
      [!0, "accepted", "accepted"],
      [!0, "own", "bonus"],
      [!0, "thrown", "thrown away"],
      [waits, "waits", "waits"],
      [any("refill"), "refill", "enters"],
      [any("eos"), "eos", "EOS"],
      [any("budget"), "budget", "budget spent"],
      [any("stopped"), "stopped", "stopped"],
      [any("moved") || tallies.some(({ copies }) => copies), "moved", "K/V copied"],
      [any("violation"), "violation", "violation, \u25B2 the first"],
      [parts.some((each) => each.some((round) => round >= 0)), "parts", "text differs from here"]
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
    let x = 12, y = 8;
    return this.entries.map(({ kind, words }) => {
      let w = SAMPLE + 4 + measureText(words, fontOf({ size: 11 })) + 14;
      x > 12 && x + w > width && ([x, y] = [12, y + LINE2]);
      let place = { kind, words, x, y };
      return x += w, place;
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
    for (let { kind, words, x, y } of this._places(width))
      this._sample(pen, kind, x, y), pen.text(words, x + SAMPLE + 4, y, { size: 11, fill: pen.p.muted });
  }
  /**
   * @param {Pen} pen
   * @param {string} kind
   * @param {number} x
   * @param {number} y
   */
  _sample(pen, kind, x, y) {
    let { p } = pen, samples = {
      accepted: () => pen.rect(x, y - 4, SAMPLE, 8, { fill: p.green }),
      own: () => pen.rect(x, y - 4, SAMPLE, 8, { fill: p.bonus }),
      thrown: () => pen.rect(x, y + 1, SAMPLE, 3, { fill: p.stale }),
      waits: () => pen.line(x, y + 0.5, x + SAMPLE, y + 0.5, { stroke: p.grey, dash: [1, 3] }),
      refill: () => drawEntry(pen, x + 11, y - 4, 8),
      moved: () => pen.rect(x, y + 2, SAMPLE, 1.5, { fill: p.blue }),
      violation: () => {
        pen.rect(x, y - 4, SAMPLE, 8, { fill: p.green }), pen.rect(x, y - 4, SAMPLE, 2, { fill: p.red });
      },
      parts: () => drawSign(pen, "\u2260", x + 8, y, p.ink)
    };
    samples[kind] ? samples[kind]() : drawEnd(pen, kind, x + 4, y - 4, 8);
  }
};

// src/map/axis.js
var FEWEST = 4, STEPS = [1, 2, 5, 10], TICK = 64, Axis = class {
  /** @param {Tally[]} tallies */
  constructor(tallies) {
    this.tallies = tallies, this.canTime = tallies.every(({ timed }) => timed), this.byTime = !1, this.from = 0, this.to = this.end;
  }
  // Where the longest run ends.
  get end() {
    return Math.max(...this.tallies.map((tally) => this.start(tally, tally.rounds)), 1e-6);
  }
  get zoomed() {
    return this.to - this.from < this.end * (1 - 1e-9);
  }
  /**
   * Where a round of a run begins, and `rounds` where the run ends.
   * @param {Tally} tally
   * @param {number} round
   */
  start(tally, round) {
    return this.byTime ? tally.starts[round] : round;
  }
  /**
   * The round of a run at a place; -1 before the run, its number of rounds behind it.
   * @param {Tally} tally
   * @param {number} value
   */
  roundAt(tally, value) {
    return value < 0 ? -1 : this.byTime ? lastStart(tally.starts, value) : Math.min(Math.floor(value), tally.rounds);
  }
  /**
   * The step of a run at a place: its round, and the phase in it.
   * @param {Tally} tally
   * @param {number} value
   */
  stepAt(tally, value) {
    let { phases } = tally.film, round = Math.min(Math.max(this.roundAt(tally, value), 0), tally.rounds - 1), { ms, all } = tally.totals(round, round + 1), start2 = this.start(tally, round), share = (value - start2) / Math.max(this.start(tally, round + 1) - start2, 1e-9), phase = ms.map(
      (_, phase2) => this.byTime ? sumOf(ms.slice(0, phase2 + 1)) / Math.max(all, 1e-9) : (phase2 + 1) / phases
    ).findIndex((end) => share < end);
    return round * phases + (phase >= 0 ? phase : phases - 1);
  }
  /**
   * The rounds [first, stop) of a run that lie at least partly in a range of the axis.
   * @param {Tally} tally
   * @param {Range} range
   * @returns {Range}
   */
  roundsIn(tally, [low, high]) {
    let first = Math.max(this.roundAt(tally, low), 0), last = this.roundAt(tally, high), inside = last < tally.rounds && this.start(tally, last) < high - 1e-9, stop = Math.min(last + (inside ? 1 : 0), tally.rounds);
    return [Math.min(first, stop), stop];
  }
  /**
   * @param {number} value
   * @param {number} room
   */
  x(value, room) {
    return (value - this.from) / (this.to - this.from) * room;
  }
  /**
   * @param {number} x
   * @param {number} room
   */
  value(x, room) {
    return this.from + x / room * (this.to - this.from);
  }
  // -- what is seen
  /** @param {boolean} byTime */
  setByTime(byTime) {
    let [lead] = [...this.tallies].sort((a, b) => b.rounds - a.rounds), seen = this.zoomed ? this.roundsIn(lead, [this.from, this.to]) : null;
    this.byTime = byTime && this.canTime, this.reset(), seen && this._see(this.start(lead, seen[0]), this.start(lead, seen[1]));
  }
  reset() {
    this.from = 0, this.to = this.end;
  }
  /**
   * factor: above 1 for less of the run; about: what stays where it is.
   * @param {number} factor
   * @param {number} about
   */
  zoomBy(factor, about) {
    let span = this.to - this.from, least = Math.min(FEWEST * this.end / Math.max(...this.tallies.map((t) => t.rounds), 1)), wanted = Math.min(Math.max(span / factor, least), this.end), share = Math.min(Math.max((about - this.from) / span, 0), 1), before = this.from;
    return this._see(about - share * wanted, about + (1 - share) * wanted), before !== this.from || Math.abs(span - wanted) > 1e-9 * span;
  }
  /** @param {number} share of what is seen */
  panBy(share) {
    let by = share * (this.to - this.from);
    this._see(this.from + by, this.to + by);
  }
  /**
   * So that a range is seen, if it fits.
   * @param {Range} range
   */
  reveal([low, high]) {
    let span = this.to - this.from;
    low < this.from ? this._see(low - span * 0.1, low + span * 0.9) : high > this.to && this._see(high - span * 0.9, high + span * 0.1);
  }
  /**
   * @param {number} from
   * @param {number} to
   */
  _see(from, to) {
    let span = Math.min(to - from, this.end);
    this.from = Math.min(Math.max(from, 0), this.end - span), this.to = this.from + span;
  }
  /**
   * The numbers along the axis that are seen.
   * @param {number} room
   */
  ticks(room) {
    let rough = (this.to - this.from) / Math.max(room, 1) * TICK, power = 10 ** Math.floor(Math.log10(rough)), wanted = power * (STEPS.find((step2) => step2 * power >= rough) ?? 10), step = this.byTime ? wanted : Math.max(Math.round(wanted), 1), first = Math.ceil(this.from / step - 1e-9), count = Math.floor(this.to / step + 1e-9) - first + 1;
    return Array.from({ length: Math.max(count, 0) }, (_, n) => (first + n) * step);
  }
};
function lastStart(starts, value) {
  let low = 0, high = starts.length - 1;
  for (; low < high; ) {
    let middle = low + high + 1 >> 1;
    starts[middle] <= value ? low = middle : high = middle - 1;
  }
  return low;
}

// src/map/lead.js
function leads(axis, tallies) {
  let edges = /* @__PURE__ */ new Set([0, axis.end]);
  for (let tally of tallies)
    for (let round = 0; round <= tally.rounds; round++) edges.add(axis.start(tally, round));
  let sorted = [...edges].sort((a, b) => a - b);
  return sorted.slice(1).map((to, n) => ({ from: sorted[n], to, ahead: aheadAt(axis, tallies, sorted[n]) }));
}
function aheadAt(axis, tallies, value) {
  let [first, second] = tallies.map(
    (tally) => tally.tokensBefore(Math.max(axis.roundAt(tally, value), 0))
  );
  return first - second;
}

// src/map/placepaint.js
var CLOSEST = 13, PlacePainter = class {
  /**
   * @param {Pen} pen
   * @param {RunMap} map
   * @param {MapLayout} layout
   */
  constructor(pen, map, layout) {
    this.pen = pen, this.map = map, this.layout = layout, this.end = 66 + layout.room;
  }
  /**
   * px of a range of rounds of a run, cut to what is seen; null where none is.
   * @param {number} run
   * @param {Range} rounds
   * @returns {Range | null}
   */
  _across(run, [first, stop]) {
    let { axis, tallies } = this.map, [left, right] = [first, stop].map(
      (round) => 66 + axis.x(axis.start(tallies[run], round), this.layout.room)
    );
    return right < 66 - 0.5 || left > this.end + 0.5 ? null : [Math.max(left, 66), Math.min(right, this.end)];
  }
  under() {
    let { pen, layout, map } = this;
    layout.groups.forEach((group2, run) => {
      let { view } = map.shell.runs[run], request = map.shell.runs[run].requestOf(view.row), y = request === null ? null : layout.laneY(run, request), { h } = blockIn(group2.pitch);
      map.range && this._range(run, map.axis.roundsIn(map.tallies[run], map.range)), y !== null && pen.rect(66, y - 1, layout.room, h + 2, { fill: pen.p.blueSoft, radius: 2 });
    });
  }
  /**
   * @param {number} run
   * @param {Range} rounds
   */
  _range(run, rounds) {
    let place = rounds[1] > rounds[0] ? this._across(run, rounds) : null;
    if (!place) return;
    let { pen, layout } = this, { lanes: lanes2, bottom } = layout.groups[run], [left, right] = place, [top, height] = [lanes2 - 3, bottom - lanes2 + 3];
    pen.rect(left, top, right - left, height, { fill: pen.p.blueSoft });
    for (let x of place)
      pen.rect(Math.min(x, right - 1.5), top, 1.5, height, { fill: pen.p.blue });
  }
  over() {
    let { pen, layout, map } = this;
    layout.groups.forEach((group2, run) => {
      let { film, view } = map.shell.runs[run], round = film.round(view.step), place = this._across(run, [round, round + 1]);
      if (layout.two && this._name(run), this._numbers(run), this._bar(run), !place) return;
      let [left, right] = place, w = Math.max(right - left, 3), x = Math.min(left, this.end - w), height = group2.bottom - group2.lanes + (layout.two ? -2 : 2);
      pen.rect(x - 1.5, group2.lanes - 3, w + 2, height, {
        stroke: pen.p.blue,
        width: 1.75,
        radius: 2
      });
    }), this._playhead();
  }
  /** @param {number} run */
  _name(run) {
    let { pen, layout, map } = this, { name } = layout.groups[run], words = `${run ? "second" : "first"}: ${map.names[run]}`;
    pen.text(words, 12, name + 9, { size: 11, weight: 650, max: layout.width - 24 });
  }
  /**
   * The requests' numbers, as many as fit, and that of the chosen one.
   * @param {number} run
   */
  _numbers(run) {
    let { pen, layout, map } = this, { lanes: lanes2, first, shown, pitch } = layout.groups[run], { h } = blockIn(pitch), chosen2 = map.shell.runs[run].requestOf(map.shell.runs[run].view.row), every = [1, 2, 4, 8, 16, 32].find((n) => n * pitch >= (n > 1 ? CLOSEST : 10)) ?? 64, look = { size: 10, fill: pen.p.muted, align: "right" }, at = chosen2 === null ? -1 : chosen2 - first;
    for (let place = 0; place < shown; place++) {
      let request = first + place, near = Math.abs(place - at) * pitch < 11 && at >= 0 && at < shown;
      request % every || near || pen.text(`${request}`, 58, lanes2 + place * pitch + h / 2 + 0.5, look);
    }
    if (at < 0 || at >= shown) return;
    let y = Math.max(lanes2 + at * pitch + h / 2 + 0.5, 6), own = { ...look, weight: 700, fill: pen.p.blue };
    pen.text(`request ${chosen2}`, 58, y, { ...own, max: 56 });
  }
  /**
   * Which of the lanes are seen, where not all are.
   * @param {number} run
   */
  _bar(run) {
    let { pen, layout } = this, { lanes: lanes2, first, shown, count, pitch } = layout.groups[run];
    if (shown >= count) return;
    let height = shown * pitch, x = layout.width - 5;
    pen.rect(x, lanes2, 3, height, { fill: pen.p.greySoft });
    let top = lanes2 + height * first / count;
    pen.rect(x, top, 3, Math.max(height * shown / count, 6), { fill: pen.p.grey });
  }
  /** px of the round's number on the axis; where it is not seen, none. */
  playhead() {
    let { words, x } = this._head(), half = this.map.measure(words) / 2;
    return (
      /** @type {Range} */
      [x - half, x + half]
    );
  }
  _head() {
    let { map, layout } = this, { film, view } = map.shell.runs[map.lead], round = film.round(view.step), place = this._across(map.lead, [round, round + 1]), words = map.axis.byTime ? `round ${round}` : `${round}`;
    if (!place) return { words, x: -99, shown: !1 };
    let half = map.measure(words) / 2, middle = (place[0] + place[1]) / 2;
    return { words, x: Math.min(middle, layout.width - half - 2), shown: !0 };
  }
  _playhead() {
    let { pen, layout } = this, { words, x, shown } = this._head(), look = { size: 11, weight: 700, fill: pen.p.blue, align: "center" };
    shown && pen.text(words, x, layout.ruler + 11, look);
  }
};

// src/map/strippaint.js
var NARROWEST2 = 2, SMALL = { size: 10 }, StripPainter = class {
  /**
   * @param {Pen} pen
   * @param {{ axis: Axis, layout: MapLayout }} of
   */
  constructor(pen, { axis, layout }) {
    this.pen = pen, this.axis = axis, this.layout = layout;
    let { p } = pen;
    this.colours = [p.grey, p.draft, p.target, p.green, p.orange];
  }
  /**
   * The time and the bytes of a run's rounds.
   * @param {Tally} tally
   * @param {number} run
   */
  paint(tally, run) {
    let { pen, layout } = this, { time, bytes } = layout.groups[run], { heights } = layout, columns = this._columns(tally), look = { ...SMALL, fill: pen.p.muted, align: "right" };
    pen.clip(65, time - 2, layout.room + 2, bytes + heights.bytes - time + 4, () => {
      tally.timed && this._times(tally, columns, time, heights.time), tally.copies && this._bytes(tally, columns, bytes, heights.bytes);
    }), tally.timed && pen.text("time", 58, time + heights.time / 2, look), tally.copies && pen.text("K/V", 58, bytes + heights.bytes / 2, look);
  }
  /**
   * [first, stop) of the rounds of each column that is seen.
   * @param {Tally} tally
   */
  _columns(tally) {
    let { axis } = this, [first, stop] = axis.roundsIn(tally, [axis.from, axis.to]), columns = [];
    for (let round = first; round < stop; round++) {
      let last = columns[columns.length - 1];
      last && this._x(tally, last[1]) - this._x(tally, last[0]) < NARROWEST2 ? last[1]++ : columns.push([round, round + 1]);
    }
    return columns;
  }
  /**
   * @param {Tally} tally
   * @param {number} round
   */
  _x(tally, round) {
    return 66 + this.axis.x(this.axis.start(tally, round), this.layout.room);
  }
  /**
   * By time, a round is as wide as it took, and so is each phase; by rounds it is as high.
   * @param {Tally} tally
   * @param {[number, number][]} columns
   * @param {number} top
   * @param {number} height
   */
  _times(tally, columns, top, height) {
    let { pen, colours, axis } = this;
    for (let [first, stop] of columns) {
      let x = this._x(tally, first), w = this._x(tally, stop) - x, { ms, all } = tally.totals(first, stop), gap = w >= 5 ? 1 : 0, done = 0;
      ms.forEach((value, phase) => {
        let part = value / Math.max(all, 1e-9), most = tally.slowest * (stop - first), h = Math.min(value / most * height, height - done);
        axis.byTime ? pen.rect(x + done * (w - gap), top + 6, part * (w - gap), height - 6, {
          fill: colours[phase]
        }) : h > 0 && pen.rect(x, top + height - done - h, w - gap, h, { fill: colours[phase] }), done += axis.byTime ? part : h;
      }), !axis.byTime && all > tally.slowest * (stop - first) * 1.001 && pen.rect(x, top + 3, w, 2, { fill: pen.p.panel });
    }
  }
  /**
   * @param {Tally} tally
   * @param {[number, number][]} columns
   * @param {number} top
   * @param {number} height
   */
  _bytes(tally, columns, top, height) {
    let { pen } = this;
    for (let [first, stop] of columns) {
      let bytes = tally.totals(first, stop).bytes ?? 0;
      if (!bytes) continue;
      let x = this._x(tally, first), w = this._x(tally, stop) - x, h = Math.max(bytes / (stop - first) / tally.heaviest * height, 1.5);
      pen.rect(x, top + height - h, w - (w >= 5 ? 1 : 0), h, { fill: pen.p.blue });
    }
  }
  /**
   * How many tokens one run is ahead of the other: above the line the first one is.
   * @param {Tally[]} tallies
   */
  lead(tallies) {
    let { pen, axis, layout } = this, { p } = pen, height = layout.heights.lead, top = layout.lead ?? 0, middle = top + height / 2, steps = leads(axis, tallies), most = Math.max(...steps.map(({ ahead }) => Math.abs(ahead)), 1), right = 66 + layout.room;
    pen.clip(66, top, layout.room + 1, height, () => {
      steps.forEach(({ from, to, ahead }) => {
        let x = Math.max(66 + axis.x(from, layout.room), 66), w = Math.min(66 + axis.x(to, layout.room), right) - x, h = Math.abs(ahead) / most * (height / 2 - 1);
        w > 0 && h > 0 && pen.rect(x, ahead > 0 ? middle - h : middle, w, h, {
          fill: ahead > 0 ? p.target : p.draft
        });
      }), pen.line(66, middle, right, middle, { stroke: p.grey });
    });
    let look = { ...SMALL, fill: p.muted, align: "right", max: 56 };
    pen.text("1st ahead", 58, top + height / 4, look), pen.text("2nd ahead", 58, top + 3 * height / 4, look);
  }
  /**
   * The numbers of the axis; those that `taken` covers, in px, are left out.
   * @param {[number, number]} taken
   */
  ruler([left, right]) {
    let { pen, axis, layout } = this, { p } = pen, y = layout.ruler, end = 66 + layout.room;
    pen.line(66, y + 0.5, end, y + 0.5, { stroke: p.grey });
    for (let value of axis.ticks(layout.room)) {
      let at = axis.byTime ? value : value + 0.5, x = 66 + axis.x(at, layout.room), words = axis.byTime ? `${Number(value.toPrecision(4))} ms` : `${value}`, half = pen.measure(words, SMALL) / 2;
      x < 66 || x > end || (pen.line(x, y, x, y + 3, { stroke: p.grey }), (x + half + 4 < left || x - half - 4 > right) && pen.text(words, Math.min(x, layout.width - half - 2), y + 11, {
        ...SMALL,
        fill: p.muted,
        align: "center"
      }));
    }
    let unit = { ...SMALL, fill: p.muted, align: "right" };
    axis.byTime || pen.text("round", 58, y + 11, unit);
  }
};

// src/map/words.js
var HAPPENED = {
  refill: "enters the batch",
  eos: "ends with EOS",
  budget: "ends with its budget",
  stopped: "ends before EOS or its budget",
  moved: "K/V copied",
  violation: "\u25B2 violation"
};
function roundsWords(first, stop) {
  return stop - first < 1 ? "no round" : stop - first === 1 ? `round ${first}` : `rounds ${first}\u2013${stop - 1}`;
}
function gainWords(tally, block) {
  let { accepted, own, thrown } = block, gains = [
    accepted ? `${counted(accepted, "draft")} accepted` : "",
    own ? "bonus" : "",
    thrown ? `${thrown} thrown away` : ""
  ].filter(Boolean), events = Object.entries(HAPPENED).filter(([name]) => tally.has(block, name)).map(([, words]) => words);
  return [gains.join(", ") || "idle", ...events].join("; ");
}
function laneHint(tally, request, round) {
  let block = tally.block(request, round);
  if (block) return `request ${request}, round ${round}: ${gainWords(tally, block)}`;
  let wait = tally.waits[request].find(([from, to]) => round >= from && round < to);
  return wait ? `request ${request} waits: ${roundsWords(...wait)}` : null;
}
function roundHint(tally, round) {
  let { phases } = tally.film.json, { ms, all, bytes } = tally.totals(round, round + 1), copied = bytes ? `, ${bytesOf(bytes)} of K/V copied` : "";
  if (!tally.timed) return `round ${round}${copied}`;
  let parts = ms.map((value, phase) => `${phases[phase]} ${milliseconds(value)}`).join(", ");
  return `round ${round}: ${milliseconds(all)}${copied} \u2014 ${parts}`;
}
function totalsWords(tally, { first, stop, tokens, accepted, verified, rows, ...more }) {
  let { phases } = tally.film.json, { ms, all, bytes } = more, whole = stop - first === tally.rounds, parts = [counted(tokens, "token")];
  if (verified && parts.push(`${percent(accepted / verified)} of drafts accepted`), rows && parts.push(`mean acceptance length ${(1 + accepted / rows).toFixed(2)}`), tally.timed && stop > first) {
    let each = ms.map((value, phase) => `${phases[phase]} ${milliseconds(value).slice(0, -3)}`);
    parts.push(`${milliseconds(all)}: ${each.join(", ")}`);
  }
  return bytes !== null && parts.push(bytes ? `${bytesOf(bytes)} of K/V copied` : "no K/V copied"), { head: whole ? `all ${counted(stop, "round")}` : roundsWords(first, stop), words: parts.join(" \xB7 ") };
}
function winnerWords(tallies, names) {
  let ends = tallies.map((tally) => tally.starts[tally.rounds]), rounds = tallies.map((tally) => tally.rounds), parts = [];
  if (tallies.every(({ timed }) => timed)) {
    let [fast, slow] = ends[0] <= ends[1] ? [0, 1] : [1, 0], less = percent(1 - ends[fast] / ends[slow]);
    parts.push(
      `The ${ordinal(fast)} run (${names[fast]}) ends first: ${milliseconds(ends[fast])} against ${milliseconds(ends[slow])}, ${less} less`
    );
  }
  if (rounds[0] === rounds[1]) parts.push(`both take ${counted(rounds[0], "round")}`);
  else {
    let few = rounds[0] < rounds[1] ? 0 : 1;
    parts.push(
      `the ${ordinal(few)} takes ${counted(rounds[few], "round")}, the other ${rounds[1 - few]}`
    );
  }
  let words = `${parts.join("; ")}.`;
  return words.charAt(0).toUpperCase() + words.slice(1);
}
function ordinal(run) {
  return run ? "second" : "first";
}
function endWords(tally, blocks) {
  let found = ["eos", "budget", "stopped"].find(
    (name) => blocks.some((block) => tally.has(block, name))
  );
  return { eos: "EOS", budget: "budget", stopped: "stopped" }[found ?? ""] ?? "\u2013";
}
function lines(tally) {
  return tally.lanes.map((blocks, request) => {
    let sum = (name) => blocks.reduce((so, block) => so + block[name], 0), times = (name) => blocks.filter((block) => tally.has(block, name)).length, waits = tally.waits[request].reduce((so, [from, to]) => so + to - from, 0), last = blocks[blocks.length - 1], broken = tally.film.checked ? [times("violation")] : [];
    return [
      request,
      last ? roundsWords(blocks[0].round, last.round + 1) : "\u2013",
      waits,
      sum("accepted") + sum("own"),
      sum("accepted"),
      sum("own"),
      sum("thrown"),
      times("moved"),
      ...broken,
      endWords(tally, blocks)
    ];
  });
}
function mapTable(tallies, caption) {
  let judged = tallies.every((tally) => tally.film.checked), head = [
    ...tallies.length > 1 ? ["run"] : [],
    "request",
    "rounds",
    "waits",
    "tokens",
    "accepted",
    "bonus",
    "thrown away",
    "K/V copied",
    ...judged ? ["violations"] : [],
    "end"
  ], rows = tallies.flatMap(
    (tally, run) => lines(tally).map((line) => tallies.length > 1 ? [ordinal(run), ...line] : line)
  );
  return { caption, head, rows };
}
function describeMap(tallies, names) {
  let sentences2 = tallies.map((tally, run) => {
    let { words } = totalsWords(tally, tally.totals(0, tally.rounds)), who = tallies.length > 1 ? `The ${ordinal(run)} run, ${names[run]}: ` : "", size = `${counted(tally.lanes.length, "request")}, ${counted(tally.rounds, "round")}`, { first } = tally, broken = first ? ` First violation: round ${first.round}, request ${first.request}.` : "";
    return `${who}${size}, ${words}.${broken}`;
  }), winner = tallies.length > 1 ? [winnerWords(tallies, names)] : [];
  return ["Map of the run, a lane a request.", ...sentences2, ...winner].join(" ");
}

// src/map/runmap.js
var RunMap = class {
  static id = "map";
  /**
   * @param {Shell} shell
   * @param {string[]} names of the runs
   */
  constructor(shell, names) {
    this.shell = shell, this.tallies = shell.runs.map(({ film }) => film.tally), this.names = names, this.axis = new Axis(this.tallies), this.axis.setByTime(names.length > 1), this.firsts = this.tallies.map(() => 0), this.low = !1, this.range = null, this.anchor = null;
    let partings = shell.comparison?.partings ?? [];
    this.parts = this.tallies.map(
      (tally) => partings.map((index, request) => index < 0 ? -1 : tally.roundOf(request, index))
    ), this._described = describeMap(this.tallies, this.names);
  }
  // -- what it shows
  empty() {
    return !this.shell.clocks;
  }
  title() {
    let [tally] = this.tallies, requests = counted(tally.lanes.length, "request");
    if (this.tallies.length > 1) return `Map of both runs: ${requests}`;
    let time = tally.timed ? `, ${milliseconds(tally.starts[tally.rounds])}` : "";
    return `Map of the run: ${requests}, ${counted(tally.rounds, "round")}${time}`;
  }
  describe() {
    return this._described;
  }
  table() {
    return mapTable(
      this.tallies,
      this.tallies.length > 1 ? winnerWords(this.tallies, this.names) : ""
    );
  }
  /** A line {name, head, words} for each run, of the range or of everything. */
  totals() {
    let lines2 = this.tallies.map((tally, run) => {
      let [first, stop] = this.range ? this.axis.roundsIn(tally, this.range) : [0, tally.rounds];
      return { name: this.tallies.length > 1 ? `${this.names[run]}: ` : "", ...totalsWords(tally, tally.totals(first, stop)) };
    }), last = this.tallies.length > 1 ? winnerWords(this.tallies, this.names) : "";
    return { lines: lines2, last };
  }
  /** What the lanes look like depends on this. */
  lanesKey() {
    let { byTime, from, to } = this.axis;
    return [this.low, byTime, from, to, ...this.firsts].join();
  }
  key() {
    let places = this.shell.runs.map(({ view }) => `${view.step}/${view.row}`);
    return [this.lanesKey(), ...places, ...this.range ?? []].join();
  }
  /**
   * @param {number} width
   * @param {boolean} [low]
   */
  layout(width, low = this.low) {
    let runs = this.tallies.map((tally, run) => ({
      count: tally.lanes.length,
      first: this.firsts[run],
      timed: tally.timed && !low,
      copies: tally.copies && !low
    }));
    return new MapLayout(width, runs, low);
  }
  /** @param {number} width */
  height(width) {
    return this.layout(width).height;
  }
  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    this.drawPlace(pen, width, () => this.drawLanes(pen, width));
  }
  /**
   * What stays as long as `lanesKey` does.
   * @param {Pen} pen
   * @param {number} width
   */
  drawLanes(pen, width) {
    let { axis, tallies, parts } = this, layout = this.layout(width), strips = new StripPainter(pen, { axis, layout });
    tallies.forEach((tally, run) => {
      new LanePainter2(pen, { axis, layout, tally, run, parts: parts[run] }).paint(), this.low || strips.paint(tally, run);
    }), layout.two && strips.lead(tallies);
  }
  /**
   * Where the reader is, under and over the lanes.
   * @param {Pen} pen
   * @param {number} width
   * @param {() => void} lanes
   */
  drawPlace(pen, width, lanes2) {
    let { axis } = this, layout = this.layout(width), painter = new PlacePainter(pen, this, layout);
    painter.under(), lanes2(), new StripPainter(pen, { axis, layout }).ruler(painter.playhead()), painter.over();
  }
  // -- what lies under a point
  /**
   * @param {number} x
   * @param {number} width
   */
  value(x, width) {
    return this.axis.value(x - 66, this.layout(width).room);
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @returns {Spot & { round: number, value: number }}
   */
  spot(x, y, width) {
    let found = this.layout(width).under(y), value = this.value(x, width), run = found.part === "ruler" || found.part === "lead" ? this.lead : found.run;
    return { ...found, run, value, round: this.axis.roundAt(this.tallies[run], value) };
  }
  /** The run that takes more rounds, whose clock counts. */
  get lead() {
    return this.shell.comparison?.lead ?? 0;
  }
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hint(x, y, width) {
    let { part, run, request, round, value } = this.spot(x, y, width), tally = this.tallies[run];
    return x < 66 ? request === null ? null : `request ${request}` : part === "lead" ? this._leadHint(value) : part === "none" || round < 0 || round >= tally.rounds ? null : part === "lane" && request !== null ? laneHint(tally, request, round) : roundHint(tally, round);
  }
  /** @param {number} value */
  _leadHint(value) {
    let ahead = aheadAt(this.axis, this.tallies, value);
    return ahead ? `the ${ahead > 0 ? "first" : "second"} run is ${counted(Math.abs(ahead), "token")} ahead` : "both runs have as many tokens";
  }
  hit() {
    return null;
  }
  // -- what the reader does
  /** So that the step and the row that are shown are seen. */
  follow() {
    if (!this.shell.clocks) return;
    let tally = this.tallies[this.lead], round = this._roundOf(this.lead), { axis } = this;
    axis.reveal([axis.start(tally, round), axis.start(tally, round + 1)]), this.anchor !== null && this._selectFrom(this.anchor);
    let layout = this.layout(800);
    this.shell.runs.forEach((run, n) => {
      let request = run.requestOf(run.view.row);
      request !== null && (this.firsts[n] = layout.firstFor(n, request));
    });
  }
  /** @param {number} run */
  _roundOf(run) {
    let { film, view } = this.shell.runs[run];
    return film.round(view.step);
  }
  /** @param {number} anchor */
  _selectFrom(anchor) {
    let tally = this.tallies[this.lead], now = this._roundOf(this.lead), { axis } = this, [first, last] = [Math.min(anchor, now), Math.max(anchor, now)];
    this.range = [axis.start(tally, first), axis.start(tally, last + 1)];
  }
  /** Begins to select rounds at the one that is shown; the next time, ends there. */
  mark() {
    if (this.anchor !== null) {
      this.anchor = null;
      return;
    }
    this.anchor = this._roundOf(this.lead), this._selectFrom(this.anchor);
  }
  /** @param {Range} range of the axis */
  select(range) {
    this.anchor = null, this.range = range;
  }
  clear() {
    this.anchor = null, this.range = null;
  }
  /** @param {boolean} byTime */
  setByTime(byTime) {
    let tally = this.tallies[this.lead], { axis } = this, rounds = this.range && axis.roundsIn(tally, this.range);
    axis.setByTime(byTime), rounds && (this.range = [axis.start(tally, rounds[0]), axis.start(tally, rounds[1])]), this.follow();
  }
  /**
   * What keeps its place when keys zoom: the selected rounds, or the one that is shown.
   */
  get middle() {
    if (this.range) return (this.range[0] + this.range[1]) / 2;
    let round = this._roundOf(this.lead), tally = this.tallies[this.lead];
    return (this.axis.start(tally, round) + this.axis.start(tally, round + 1)) / 2;
  }
  /**
   * Lanes that do not all fit slide up and down. Returns whether they do.
   * @param {number} run
   * @param {number} lanes
   */
  scroll(run, lanes2) {
    let { count, shown } = this.layout(800).groups[run], before = this.firsts[run];
    return this.firsts[run] = Math.min(Math.max(before + lanes2, 0), count - shown), this.firsts[run] !== before;
  }
  /**
   * px of the playhead's words
   * @param {string} words
   */
  measure(words) {
    return measureText(words, fontOf({ size: 11, weight: 700 }));
  }
};

// src/page/mappointer.js
var STILL = 4, SPEED = 3e-3, LANES = 3, MapPointer = class {
  /** @param {MapSection} section */
  constructor(section) {
    this.section = section, this.map = section.map, this.shell = section.shell, this.pressed = !1, this.scrubs = !1, this.selects = !1, this.x = 0, this.value = 0;
  }
  /** @param {PointerEvent} event */
  press(event) {
    if (event.button !== 0) return;
    let { offsetX: x, offsetY: y } = event, { part, value } = this.map.spot(x, y, this.section.width);
    Object.assign(this, { pressed: !0, scrubs: part === "ruler", selects: !1, x, value }), this.section.canvas.setPointerCapture(event.pointerId), this.scrubs && this._scrub(x);
  }
  /** @param {PointerEvent} event */
  move(event) {
    let { offsetX: x, offsetY: y } = event, { desk, width } = this.section;
    if (!this.pressed) return desk.tip(this.map.hint(x, y, width), event);
    if (this.scrubs) return this._scrub(x);
    if (!this.selects && Math.abs(x - this.x) < STILL) return;
    this.selects = !0, desk.tip(null);
    let value = this.map.value(Math.max(x, 66), width);
    this.map.select([Math.min(value, this.value), Math.max(value, this.value)]), desk.touch(this.section);
  }
  /** Whether a range has been selected. */
  release() {
    return this.pressed = !1, this.selects;
  }
  /** @param {PointerEvent} event */
  click({ offsetX: x, offsetY: y }) {
    let { shell, map, section } = this;
    if (this.selects || this.scrubs) return;
    let { part, run, request, round } = map.spot(x, y, section.width);
    if (map.range && section.clear(), part === "none") return;
    let { film, view } = shell.runs[run], at = Math.min(Math.max(round, 0), map.tallies[run].rounds - 1);
    x >= 66 && shell.goTo(shell.runs[run], at * film.phases + film.phase(view.step)), request !== null && shell.pick(request);
  }
  /**
   * To the step at a place of the axis.
   * @param {number} x
   */
  _scrub(x) {
    let { map, shell, section } = this, value = map.value(x, section.width);
    shell.goTo(shell.runs[map.lead], map.axis.stepAt(map.tallies[map.lead], value));
  }
  /**
   * Over the names it slides lanes that do not all fit; sideways it slides what is seen. It zooms
   * if `zooms` is true; else it is the page's.
   * @param {WheelEvent} event
   * @param {boolean} zooms
   */
  wheel(event, zooms) {
    let { map, section } = this, { deltaX, deltaY, offsetX, offsetY } = event;
    if (event.shiftKey || Math.abs(deltaX) > Math.abs(deltaY)) {
      if (!map.axis.zoomed) return;
      map.axis.panBy((deltaX || deltaY) / section.width);
    } else if (offsetX < 66) {
      let { run } = map.spot(offsetX, offsetY, section.width);
      if (!map.scroll(run, Math.sign(deltaY) * LANES)) return;
    } else {
      let about = map.value(offsetX, section.width);
      if (!zooms || !map.axis.zoomBy(Math.exp(-deltaY * SPEED), about)) return;
    }
    event.preventDefault(), section.desk.touch(section);
  }
};

// src/page/mapsection.js
var ZOOM = 1.6, MapSection = class extends Section {
  /** @param {Shell} shell */
  constructor(shell) {
    let map = new RunMap(
      shell,
      shell.runs.map(({ film }) => runName(film))
    );
    super(deskOf(shell), map, [new MapLegend(map)]), this.shell = shell, this.map = map, this.pointer = new MapPointer(this), this.lanes = null, this.slider = this._makeSlider(), this.ways = [!1, !0].map((byTime) => this._way(byTime)), this.totals = element("div", { class: "sv-totals" }), this.said = element("p", { class: "sv-said", "aria-live": "polite" }), this.addTools([this._tools()]), this.body.append(this.slider, this.totals, this.said);
  }
  _makeSlider() {
    let { shell } = this, range = { type: "range", min: "0", max: String(Math.max(shell.clocks - 1, 0)), step: "1", value: "0" };
    return element("input", { ...range, class: "sv-slider", "aria-label": "step", on: {
      input: () => shell.go(Number(this.slider.value)),
      keydown: (event) => this._key(event)
    } });
  }
  /** @param {boolean} byTime */
  _way(byTime) {
    return element("button", { type: "button", class: "sv-small", title: "x", on: { click: () => this.setByTime(byTime) } }, byTime ? "time" : "rounds");
  }
  _tools() {
    let zoom = (factor) => () => this.zoom(factor), ways = element("div", { class: "sv-group", role: "group", "aria-label": "across" });
    return ways.append(...this.ways), ways.hidden = !this.map.axis.canTime, element(
      "div",
      { class: "sv-group sv-maptools" },
      ways,
      iconButton("minus", "more of the run", "\u2212", zoom(1 / ZOOM)),
      iconButton("fit", "the whole run", "0", zoom(0)),
      iconButton("plus", "less of the run", "+", zoom(ZOOM))
    );
  }
  get low() {
    return this.map.low;
  }
  /** @param {boolean} low without heading, strips and legend */
  setLow(low) {
    this.map.low = low, this.root.classList.toggle("sv-low", low), this.desk.touch(this);
  }
  /** @param {number} width */
  fullHeight(width) {
    return this.map.layout(width, !1).height + this.under[0].height(width);
  }
  /** @param {number} width */
  lowHeight(width) {
    return this.map.layout(width, !0).height;
  }
  get byTime() {
    return this.map.axis.byTime;
  }
  // -- what the reader asks for
  /** @param {boolean} byTime */
  setByTime(byTime) {
    this.map.setByTime(byTime), this.desk.touch(this);
  }
  /** @param {number} factor 0 for the whole run */
  zoom(factor) {
    let { axis, middle } = this.map;
    factor ? axis.zoomBy(factor, middle) : axis.reset(), this.desk.touch(this);
  }
  mark() {
    this.map.mark(), this.changed();
  }
  clear() {
    this.map.clear(), this.changed();
  }
  changed() {
    this.desk.touch(this);
    let { lines: lines2 } = this.map.totals();
    setText(this.said, lines2.map(({ name, head, words }) => `${name}${head}: ${words}`).join(". "));
  }
  /**
   * With the focus on the map, the keys of the slots zoom and slide the map.
   * @param {KeyboardEvent} event
   */
  _key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    let act = {
      "+": () => this.zoom(ZOOM),
      "=": () => this.zoom(ZOOM),
      "-": () => this.zoom(1 / ZOOM),
      0: () => this.zoom(0),
      ",": () => this._pan(-0.2),
      ".": () => this._pan(0.2),
      Escape: () => this.clear()
    }[event.key];
    !act || event.key === "Escape" && !this.map.range || (event.preventDefault(), event.stopPropagation(), act());
  }
  /** @param {number} share */
  _pan(share) {
    this.map.axis.panBy(share), this.desk.touch(this);
  }
  // -- the pointer
  /** @param {PointerEvent} event */
  _press(event) {
    this.pointer.press(event);
  }
  /** @param {PointerEvent} event */
  _move(event) {
    this.pointer.move(event);
  }
  _release() {
    this.pointer.release() && this.changed();
  }
  /** @param {PointerEvent} event */
  _click(event) {
    this.slider.focus({ preventScroll: !0 }), this.pointer.click(event);
  }
  /** @param {WheelEvent} event */
  _wheel(event) {
    this.pointer.wheel(event, event.ctrlKey || document.activeElement === this.slider);
  }
  // -- drawing
  /**
   * The lanes are kept as a picture for as long as they look the same.
   * @param {any} canvas
   * @param {{ key: string, palette: Palette, panel: Drawable, ratio: number }} look
   */
  _redraw(canvas, look) {
    if (canvas !== this.canvas) return super._redraw(canvas, look);
    let height = this.map.height(this.width), lanes2 = this._lanes(look, height), context = this._clear(canvas, { height, ratio: look.ratio }), pen = this._pen(canvas, context, look);
    return pen.forget(), this.map.drawPlace(pen, this.width, () => {
      context.save(), context.resetTransform(), context.drawImage(lanes2, 0, 0), context.restore(), pen.forget();
    }), height;
  }
  /**
   * @param {{ palette: Palette, ratio: number }} look
   * @param {number} height
   */
  _lanes({ palette, ratio: ratio2 }, height) {
    let key = [this.map.lanesKey(), this.width, ratio2].join();
    if (this.lanes?.key === key && this.lanes.palette === palette) return this.lanes.canvas;
    let canvas = this.lanes?.canvas ?? element("canvas");
    canvas.width = Math.round(this.width * ratio2), canvas.height = Math.round(height * ratio2);
    let context = contextOf(canvas);
    return context.scale(ratio2, ratio2), this.map.drawLanes(new CanvasPen(palette, context), this.width), this.lanes = { key, palette, canvas }, canvas;
  }
  tell() {
    super.tell();
    let { clock, clocks, phases, runs } = this.shell, [{ film, view }] = runs;
    if (this.slider.value = String(clock), clocks) {
      let place = `round ${Math.floor(clock / phases)} of 0 to ${clocks / phases - 1}`;
      setAttribute(this.slider, "aria-valuetext", `${place}, ${film.phaseName(view.step)}`);
    }
    this.ways.forEach(
      (button, n) => setAttribute(button, "aria-pressed", String(this.map.axis.byTime === (n === 1)))
    ), this._tellTotals();
  }
  _tellTotals() {
    let { lines: lines2, last } = this.map.totals(), key = JSON.stringify([lines2, last]);
    if (key === this.totals.dataset.key) return;
    this.totals.dataset.key = key;
    let shown = lines2.map(
      ({ name, head, words }) => element("p", {}, element("strong", {}, `${name}${head}`), ` ${words}`)
    );
    this.totals.replaceChildren(...shown, ...last ? [element("p", {}, last)] : []);
  }
};
function deskOf(shell) {
  return {
    palette: () => shell.palette,
    scale: () => shell.screen?.scale ?? 1,
    touch: (section) => shell.frames.touch(section),
    tip: (hint, event) => shell.tip.show(hint, event),
    point() {
    },
    pick: (row) => shell.pick(row),
    go: (step) => shell.go(step),
    happening: () => !1,
    focus() {
    }
  };
}

// src/page/motion.js
function animateMoves(shell) {
  let began = performance.now(), { clock } = shell, tick = (now) => {
    if (shell.clock !== clock || shell.ends.signal.aborted) return;
    let part = Math.min(Math.max((now - began) / 260, 0), 1), eased = 1 - (1 - part) ** 3;
    for (let run of shell.runs)
      run.view.progress !== 1 && (run.view.progress = eased, shell.frames.touch(run.sections[0]));
    part < 1 && requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}
var TURN_MS = 420;
function animateTurn(shell, to) {
  let from = shell.runs[0].view.turn, began = performance.now(), calm = matchMedia("(prefers-reduced-motion: reduce)").matches, tick = (now) => {
    if (shell.turned !== to || shell.ends.signal.aborted) return;
    let part = calm ? 1 : Math.min(Math.max((now - began) / TURN_MS, 0), 1), eased = part < 0.5 ? 2 * part * part : 1 - 2 * (1 - part) ** 2;
    for (let { view } of shell.runs) view.turn = from + (to - from) * eased;
    shell.touchStages(), part < 1 && requestAnimationFrame(tick);
  };
  tick(began);
}

// src/page/saved.js
function save(model, { step, row }) {
  if (!(model.get("step") === step && model.get("row") === row)) {
    model.set("step", step), model.set("row", row);
    try {
      model.save_changes();
    } catch {
    }
  }
}

// src/page/screen.js
var AROUND = 72, MAP_AROUND = 74, LENS_HEAD = 46, LEAST_ROOM = 260, BESIDE_FROM = 700, Screen = class {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell, this.low = null, this.seen = "", this.full = !1;
    let { signal } = shell.ends;
    this.observer = new ResizeObserver(() => this.refit()), this.observer.observe(shell.root), this.lenses = new ResizeObserver(() => this._measureLenses());
    for (let { lens } of shell.runs) this.lenses.observe(lens.inside);
    signal.addEventListener("abort", () => {
      this.observer.disconnect(), this.lenses.disconnect();
    }), window.addEventListener("resize", () => this.refit(), { signal }), document.addEventListener("fullscreenchange", () => this._fullChanged(), { signal });
  }
  toggleMap() {
    this.low = !this.shell.map.low, this.refit(!0);
  }
  /** Where a page may not take the whole screen, the view takes the whole window. */
  async toggleFull() {
    let { root } = this.shell;
    this.full = !this.full, this._fillWindow(!1);
    try {
      this.full && await root.requestFullscreen(), !this.full && document.fullscreenElement === root && await document.exitFullscreen();
    } catch {
      this._fillWindow(this.full);
    }
  }
  _fullChanged() {
    let { root } = this.shell;
    root.classList.contains("sv-window") || (this.full = document.fullscreenElement === root), this.refit(!0);
  }
  /** @param {boolean} on */
  _fillWindow(on) {
    let { classList } = this.shell.root;
    classList.contains("sv-window") !== on && (classList.toggle("sv-window", on), this.refit(!0));
  }
  togglePresent() {
    let { shell } = this;
    shell.large = !shell.large, shell.root.classList.toggle("sv-large", shell.large), this.refit(!0);
  }
  get scale() {
    return this.shell.large ? 1.4 : 1;
  }
  /** What the lens shows may be as high as the lens. */
  _measureLenses() {
    for (let { lens, view } of this.shell.runs) {
      let room = Math.max(lens.inside.clientHeight - LENS_HEAD, LEAST_ROOM);
      room !== view.room && (view.room = room, this.shell.touchAll());
    }
  }
  /** @param {boolean} [always] */
  refit(always = !1) {
    let { shell } = this, [{ root, sections, words, stage, legend }] = shell.runs, width = root.clientWidth, fills = shell.root.matches(":fullscreen, .sv-window"), whole = fills ? window.innerHeight : frameHeight(shell.root), frame = Math.floor(whole / this.scale), seen = [width, frame, fills, this.low].join();
    if (!width || seen === this.seen && !always) return;
    this.seen = seen, shell.runs.forEach((run) => run.reserve(width));
    let inside = sections[0].width || width * (width < BESIDE_FROM ? 1 : 0.6), head = shell.controls.root.offsetHeight + words.offsetHeight, batch = stage.around(inside) + sections[0].head.offsetHeight + legend.height(inside), found = fit({
      frame,
      rest: AROUND + head + batch,
      legend: legend.height(inside) + 4,
      map: shell.map.fullHeight(shell.root.clientWidth) + MAP_AROUND,
      lowMap: shell.map.lowHeight(shell.root.clientWidth),
      rows: stage.openRows,
      low: this.low
    });
    this._take(found, width >= BESIDE_FROM);
  }
  /**
   * @param {{ low: boolean, tight: boolean, row: number }} found
   * @param {boolean} beside
   */
  _take({ low, tight, row }, beside) {
    let { shell } = this, fits = beside && !shell.comparison;
    shell.map.setLow(fits ? low : this.low ?? !1), shell.root.classList.toggle("sv-tight", fits && tight);
    for (let { view } of shell.runs) view.tall = fits ? row : null;
    shell.touchAll();
  }
};

// src/page/tip.js
var Tip = class {
  /** @param {HTMLElement} place */
  constructor(place) {
    this.place = place, this.root = element("div", { class: "sv-tip", hidden: !0, "aria-hidden": "true" });
  }
  /**
   * @param {string | null | undefined} hint
   * @param {MouseEvent} [event]
   */
  show(hint, event) {
    if (this.root.hidden = !hint, !hint || !event) return;
    setText(this.root, hint);
    let box = this.place.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, left = Math.max(Math.min(x + 14, box.width - this.root.offsetWidth - 8), 4);
    Object.assign(this.root.style, { left: `${left}px`, top: `${y + 20}px` });
  }
};

// src/film/tour.js
function unevenRound(film) {
  let spreads = film.json.rounds.map(({ rows }) => {
    let gains = rows.filter(({ gained }) => gained > 0).map(({ gained }) => gained);
    return gains.length ? Math.max(...gains) - Math.min(...gains) : -1;
  });
  return Math.max(spreads.indexOf(Math.max(...spreads)), 0);
}
function tourOf(film) {
  let round = unevenRound(film), rows = film.json.rounds[round].rows, gains = rows.map(({ gained }) => gained), most = gains.indexOf(Math.max(...gains)), least = gains.indexOf(Math.min(...gains.filter((gain) => gain > 0))), short = Math.max(least, 0), begin = round * film.phases, stop = (phase, row, spot, words, more = {}) => ({
    step: begin + phase,
    row,
    lens: null,
    turned: 0,
    spot,
    words,
    ...more
  }), drafter = drafterName(film), sizes = `${counted(film.json.requests.length, "request")}, ${counted(film.json.rounds.length, "round")}`;
  return [
    stop(
      0,
      most,
      "map",
      `This is the whole run: ${sizes}. Each block is a round of a request: green is accepted, amber is the target's own token, the low orange part was thrown away. Click a block to go there.`
    ),
    stop(
      0,
      most,
      "stage",
      `Round ${round} begins. Each line is a row of the batch. A bar stands for committed tokens; the last ones can be read. The blue frame is the pending token: its K/V does not exist yet.`
    ),
    stop(
      1,
      most,
      "lens",
      `The ${drafter} proposes tokens for every row, with the probability q of each. The lens beside the batch shows the chosen row. Press \u2193 or click a row to choose another one.`
    ),
    stop(
      2,
      most,
      "lens",
      "One forward of the target reads the pending token and all drafts of all rows. The mask shows which slots each query sees: its own row up to itself, and nothing else."
    ),
    stop(3, short, "stage", acceptWords(film, rows, most, short)),
    stop(
      3,
      short,
      "stage",
      "The same rows by the positions of their tokens instead of by slots of the cache. Rows of a batch share slots, but each has its own length. Press c to go to and fro.",
      { turned: 1 }
    ),
    stop(
      4,
      short,
      "lens",
      `${syncWords(film, begin + 4)} Press ? for all keys, \u2192 for the next phase.`
    )
  ];
}
function acceptWords(film, rows, most, least) {
  let first = `Row ${most} gained most: ${counted(rows[most].gained, "token")}.`, row = rows[least];
  if (rows[most].gained === row.gained)
    return `${first} Accepted drafts are green, the bonus is amber.`;
  let why = film.rejectedDraft(row) === null ? "" : " Its rejected draft hangs below the token that replaced it.";
  return `${first} Row ${least} gained ${row.gained}.${why} So the rows are ragged now.`;
}
function syncWords(film, step) {
  let moved = new Set(film.stage(step).moves.map((move) => move[4])).size;
  return moved ? `To end in one column again, ${counted(moved, "row")} moved their K/V. The list says how far.` : "Nothing moves here: this strategy leaves the K/V where it is. The list says where it ends.";
}

// src/page/tour.js
var KNOWN = "specviz-tour", Tour = class {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell, this.at = -1, this.stops = [];
    let button = (words, click) => element("button", { type: "button", class: "sv-small", on: { click } }, words);
    this.words = element("p", { "aria-live": "polite" }), this.place = element("span", { class: "sv-place" }), this.back = button("back", () => this.to(this.at - 1)), this.next = button("next", () => this.to(this.at + 1));
    let close = button("end", () => this.end()), line = element("div", { class: "sv-group" }, this.place, this.back, this.next, close);
    this.root = element(
      "div",
      { class: "sv-tour", role: "group", "aria-label": "tour", hidden: !0 },
      this.words,
      line
    ), this.button = element(
      "button",
      {
        type: "button",
        class: "sv-icon sv-whole",
        "aria-label": "tour of a minute",
        title: "tour of a minute (g)",
        on: { click: () => this.toggle() }
      },
      "tour"
    ), this.button.classList.toggle("sv-first", !isKnown());
  }
  toggle() {
    this.at < 0 ? this.to(0) : this.end();
  }
  /** @param {number} number of the stop */
  to(number) {
    let { shell } = this;
    if (this.stops = this.stops.length ? this.stops : tourOf(shell.runs[0].film), number < 0) return;
    if (number >= this.stops.length) return this.end();
    this.at = number, keepKnown(), this.button.classList.remove("sv-first");
    let { step, row, lens, turned, spot, words } = this.stops[number];
    shell.goTo(shell.runs[0], step), shell.pickBy(row - shell.runs[0].view.row), shell.pin(lens), shell.turnTo(turned), this._light(spot), this.root.dataset.spot = spot, setText(this.words, words), setText(this.place, `${number + 1} of ${this.stops.length}`), setText(this.next, number + 1 < this.stops.length ? "next" : "done"), this.back.hidden = number === 0, this.root.hidden = !1;
  }
  end() {
    this.at = -1, this.root.hidden = !0, this._light(null), this.shell.turnTo(0), this.shell.root.focus({ preventScroll: !0 });
  }
  /** @param {string | null} spot */
  _light(spot) {
    let { root } = this.shell;
    root.querySelectorAll(".sv-lit").forEach((each) => each.classList.remove("sv-lit")), spot && root.querySelector(`.sv-${spot}`)?.classList.add("sv-lit");
  }
};
function isKnown() {
  try {
    return localStorage.getItem(KNOWN) !== null;
  } catch {
    return !1;
  }
}
function keepKnown() {
  try {
    localStorage.setItem(KNOWN, "1");
  } catch {
  }
}

// src/page/shell.js
var Shell = class {
  /** @type {Palette} */
  palette;
  /** @type {[event: string, listener: () => void][]} */
  listeners = [];
  /** @type {Run[]} */
  runs = [];
  /** @type {Controls} */
  controls;
  /**
   * @param {Model} model
   * @param {HTMLElement} root
   * @param {Film[]} films
   */
  constructor(model, root, films) {
    this.model = model, this.root = root, this.clock = 0, this.way = 1, this.row = 0, this.request = null, this.missing = null, this.pinned = null, this.turned = 0, this.large = !1, this.ends = new AbortController(), this.comparison = films.length > 1 ? new Comparison(films[0], films[1]) : null, this.phases = films[0].phases, this.clocks = this.comparison ? this.comparison.clocks : films[0].steps, this.looks = new Looks(this), this.tip = new Tip(root), this.help = new Help(this.comparison !== null), this.runs = films.map((film, number) => new Run(this, film, number)), this.frames = new Frames((sections) => this._paint(sections)), this.player = new Player(this), this.tour = new Tour(this), this.controls = new Controls(this), this.runs[0].sections[0].addTools(this.controls.zooms()), this.map = new MapSection(this), this.ahead = new Ahead(this);
    let shown = element("div", { class: "sv-runs" }, ...this.runs.map((run) => run.root)), { root: top, two } = this.controls, over = [this.tour.root, this.tip.root, this.help.root];
    root.replaceChildren(top, this.map.root, ...two, shown, ...over), root.classList.toggle("sv-compared", this.comparison !== null), this.row = Math.max(model.get("row") ?? 0, 0), this._listen(), this.screen = new Screen(this), this.controls.updatePlay(), this._show(this._clamp(model.get("step") ?? 0), !1);
  }
  dispose() {
    this.ends.abort(), this.player.play(!1), this.frames.stop();
    for (let [event, listener] of this.listeners) this.model.off(event, listener);
    this.runs.forEach((run) => run.dispose()), this.map.dispose();
  }
  _listen() {
    let { signal } = this.ends;
    this.listeners = [
      ["change:step", () => this._show(this._clamp(this.model.get("step")), !1)],
      ["change:row", () => this._pickRow(Math.max(this.model.get("row"), 0))],
      ["change:theme", () => this.looks.changed()]
    ];
    for (let [event, listener] of this.listeners) this.model.on(event, listener);
    this.root.addEventListener("keydown", (event) => this._key(event), { signal }), watchTheme(() => this.looks.changed(), signal), window.addEventListener("resize", () => this.touchAll(), { signal }), window.addEventListener("beforeprint", () => this.looks.print("light"), { signal }), window.addEventListener("afterprint", () => this.looks.print(null), { signal });
  }
  /** @param {KeyboardEvent} event */
  _key(event) {
    let action = actionOf(event, this.comparison !== null);
    action && (event.preventDefault(), event.stopPropagation(), action(this));
  }
  // -- where we are
  /** @param {number} clock */
  _clamp(clock) {
    return Math.min(Math.max(Math.round(clock), 0), this.clocks - 1);
  }
  /**
   * @param {Run} run
   * @param {number} clock
   */
  stepOf(run, clock) {
    return this.comparison?.stepOf(run.number, clock) ?? clock;
  }
  /**
   * @param {Run} run
   * @param {number} step
   */
  clockOf(run, step) {
    return this.comparison?.clockOf(run.number, step) ?? step;
  }
  /** @param {number} clock */
  go(clock) {
    let next = this._clamp(clock);
    next !== this.clock && (this.way = Math.sign(next - this.clock), this._show(next, next === this.clock + 1), this.frames.paintAtOnce());
  }
  /**
   * @param {Run} run
   * @param {number} step
   */
  goTo(run, step) {
    this.go(this.clockOf(run, step));
  }
  /**
   * @param {number} clock
   * @param {boolean} animate
   */
  _show(clock, animate) {
    this.clock = clock;
    let moving = this.move(clock, animate);
    this.map.map.follow(), this.tip.show(null), save(this.model, { step: clock, row: this.row }), this.touchAll(), moving.some(Boolean) && animateMoves(this);
  }
  /**
   * Where the runs are then; whether each one's K/V is to be seen moving.
   * @param {number} clock
   * @param {boolean} animate
   */
  move(clock, animate) {
    let [first, second] = this.runs, step = this.stepOf(first, clock), calm = !animate || matchMedia("(prefers-reduced-motion: reduce)").matches, moving = [first.show(step, this._rowIn(first, step), !calm)];
    return this.request = first.requestOf(first.view.row), second && moving.push(this._showSecond(second, this.stepOf(second, clock), !calm)), moving;
  }
  /**
   * @param {Run} run
   * @param {number} step
   * @param {boolean} animate
   */
  _showSecond(run, step, animate) {
    let row = run.film.rowOf(step, this.request ?? -1);
    return this.missing = row < 0 ? this.request : null, run.show(step, row < 0 ? this._rowIn(run, step) : row, animate);
  }
  /**
   * The chosen row, or the last one where there are fewer.
   * @param {Run} run
   * @param {number} step
   */
  _rowIn(run, step) {
    return Math.max(Math.min(this.row, run.film.rows(step).length - 1), 0);
  }
  /** @param {boolean} byTokens */
  setByTokens(byTokens) {
    this.comparison && (this.comparison.byTokens = byTokens, this._show(this.clock, !1));
  }
  // -- what is chosen and pointed at
  /** @param {number | null} request chosen in both runs */
  pick(request) {
    let [first] = this.runs, row = first.film.rowOf(first.view.step, request ?? -1);
    row >= 0 && this._pickRow(row);
  }
  /** @param {number} rows */
  pickBy(rows) {
    let { film, view } = this.runs[0];
    this._pickRow(Math.min(Math.max(view.row + rows, 0), film.rows(view.step).length - 1));
  }
  /** @param {number} row */
  _pickRow(row) {
    row === this.row && row === this.runs[0].view.row || (this.row = row, this._show(this.clock, !1), this.frames.paintAtOnce());
  }
  /**
   * @param {Run} run
   * @param {Place | null} place
   */
  point(run, place) {
    if (!samePlace(run.view.hover, place)) {
      for (let each of this.runs)
        each.view.hover = each === run ? place : placeIn(each, run, place);
      this.touchAll();
    }
  }
  /** @param {string | null} name of the panel that the lens keeps; null: it follows the phase */
  pin(name) {
    this.pinned = name, this.runs.forEach((run) => run.turnLens()), this.touchAll(), this.frames.paintAtOnce();
  }
  // -- looks
  /** @param {number} to 0: rows stand by slots, 1: by positions */
  turnTo(to) {
    this.turned = to, animateTurn(this, to);
  }
  /** @param {number} direction */
  zoom(direction) {
    for (let { stage } of this.runs) direction ? stage.zoomBy(direction) : stage.reset();
    this.touchStages();
  }
  /** @param {number} slots */
  slide(slots) {
    for (let { stage } of this.runs) stage.panBy(slots);
    this.touchStages();
  }
  touchStages() {
    for (let { sections } of this.runs) this.frames.touch(sections[0]);
  }
  showTables() {
    let { sections } = this, shown = !sections.every((section) => section.asTable);
    sections.forEach((section) => section.showTable(shown));
  }
  // -- drawing
  /** @returns {Section[]} */
  get sections() {
    return [this.map, ...this.runs.flatMap((run) => run.sections)];
  }
  touchAll() {
    this.sections.forEach((section) => this.frames.touch(section));
  }
  /** @param {Section[]} sections */
  _paint(sections) {
    let drawn = sections.map((section) => section.paint());
    sections.forEach((section) => section.tell()), this.controls.update(), this.runs.forEach((run, n) => {
      run.tell(n ? this.missing : null, this.comparison?.over(n, this.clock) ?? !1);
    }), Object.assign(this.root.dataset, { step: this.clock, row: this.runs[0].view.row }), drawn.every(Boolean) && (this.root.dataset.ready = ""), this.ahead.plan();
  }
};

// src/page/render.js
var PICTURE_AFTER_MS = 500;
function sendPicture(model, films, root) {
  let wanted = model.get("_picture_wanted");
  if (!wanted) return;
  let send = () => {
    if (!root.isConnected || !model.get("_picture_wanted")) return;
    let settings = { ...wanted, step: model.get("step"), row: model.get("row") };
    model.set("_picture", drawFigure(films, settings, root));
    try {
      model.save_changes();
    } catch {
    }
  };
  setTimeout(() => (window.requestIdleCallback ?? setTimeout)(send), PICTURE_AFTER_MS);
}
function render({ model, el }) {
  let root = element("div", {
    class: "specviz",
    tabindex: "0",
    role: "group",
    "aria-label": "step-through of a decoding run; press ? for keys",
    "data-lm-suppress-shortcuts": "true"
    // JupyterLab's shortcuts
  }, "opening the run \u2026");
  el.append(root);
  let shell = null, gone = !1, bytes = ["film", "other"].map((name) => model.get(name)).filter((each) => each?.byteLength);
  return Promise.all(bytes.map(decodeFilm)).then((films) => {
    gone || (shell = new Shell(model, root, films), sendPicture(model, films, root));
  }).catch((error) => {
    root.textContent = `This run cannot be shown: ${error.message}`, console.error(error);
  }), () => {
    gone = !0, shell?.dispose(), root.remove();
  };
}

// src/page/stored.js
function storedBytes(id) {
  let text = atob(document.getElementById(id)?.textContent ?? "");
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}
function storedJson(id) {
  return JSON.parse(new TextDecoder().decode(storedBytes(id)));
}
function showStored(place) {
  let state = storedJson("settings");
  for (let name of ["film", "other"]) state[name] = storedBytes(name);
  render({ model: {
    /** @param {string} name */
    get: (name) => state[name],
    /**
     * @param {string} name
     * @param {unknown} value
     */
    set: (name, value) => {
      state[name] = value;
    },
    save_changes() {
    },
    on() {
    },
    off() {
    }
  }, el: place }), window === window.top && place.querySelector(".specviz").focus({ preventScroll: !0 });
}
function drawStored(place) {
  let result;
  try {
    let films = ["film", "other"].filter((name) => document.getElementById(name)).map((name) => new Film(storedJson(name)));
    result = drawFigure(films, storedJson("settings"), place);
  } catch (error) {
    result = `error: ${error instanceof Error ? error.message : error}`;
  }
  document.body.append(element("pre", { id: "figure" }, result));
}
function start() {
  let place = (
    /** @type {HTMLElement | null} */
    document.querySelector("main[data-specviz]")
  );
  place?.dataset.specviz === "page" && showStored(place), place?.dataset.specviz === "figure" && drawStored(place);
}

// src/main.js
start();
var main_default = { render };
export {
  main_default as default
};
