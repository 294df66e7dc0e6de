// What the modules hand to each other: the film as Python writes it (see specviz/views/stepper/film.py),
// and what the panels, the page and the notebook expect of one another.

import type { CanvasPen } from "./draw/pen.js";
import type { SvgPen } from "./draw/svg.js";
import type { Comparison } from "./film/compare.js";
import type { Film } from "./film/film.js";

// -- the film

export type Range = [start: number, stop: number];
export type Choice = [token: number, p: number];
/** Where a draft head took the feature from that it read with a token. */
export type Source = "none" | "target" | "own" | "mask" | "block";
export type LaneName = "tokens" | "target" | "draft";
export type LaneRun = [
  slot: number,
  stop: number,
  kind: number,
  index: number,
  position: number,
  request: number,
  tokens: 0 | number[],
];
export type FeedRun = [
  model: number,
  step: number,
  row: number,
  slot: number,
  count: number,
  index: number,
  position: number,
  see: number,
  until: number,
  holes: Range[],
  node?: number,
];
export type Move = [
  model: number,
  step: number,
  fromRow: number,
  fromSlot: number,
  toRow: number,
  toSlot: number,
  length: number,
];
/** Where the windows of a run of queries begin; due: where they should, if elsewhere. */
export type Windows = { starts: number[]; due?: number[] };
export type StateKind = "open" | "kept" | "dropped" | "wrong" | "due";
/** A state, in the slot of the last token that it has read; -1 where there is none. */
export type StateMark = [kind: StateKind, slot: number, index: number, request: number];
export type Fault = [
  step: number,
  row: number,
  index: number,
  count: number,
  leaks: Range[],
  holes: Range[],
  lost: number,
  node?: number,
];

export interface RowEntry {
  request: number;
  length: number;
  drafted: number;
  verified: number;
  accepted: number;
  gained: number;
  finished: boolean;
  discarded: number;
  start: number;
  start_after: number;
  pending: number;
  pending_after: number;
  drafts: number[];
  emitted: number[];
  q: (number | null)[];
  p: (number | null)[];
  target: Choice[][];
  draft: Choice[][];
  fates: number[];
  scores?: (number | null)[];
  // in a run with trees
  parents?: number[];
  path?: number[];
  end?: number;
}

export interface PoolEntry {
  request: number;
  row: number;
  length: number;
  waited: number;
  chosen: boolean;
}

export interface StageEntry {
  words: string;
  words_of: string[] | null;
  width: number;
  lengths: number[];
  starts: number[];
  pending: number[];
  tokens: number[];
  target: number[];
  draft: number[];
  feeds: FeedRun[];
  moves: Move[];
  violations: number[];
  faults: Fault[];
  guessed?: [slot: number, stop: number, source: number][][]; // in a run with a draft head
  windows?: (Windows | null)[]; // of `feeds`, where layers have a window
  states?: StateMark[][][]; // by model and row, where layers keep states
}

/** What a row gained in a round; signs: the sum of the bits of what happened. */
export type MapEntry = [accepted: number, own: number, thrown: number, signs: number];

export interface RoundEntry {
  slots: number;
  decision: string;
  capacity?: number;
  ms: number[];
  bytes: number | null; // of K/V that was copied
  map: MapEntry[]; // by row
  rows: RowEntry[];
  pool: PoolEntry[];
  stages: StageEntry[];
}

export interface ViolationEntry {
  round: number;
  row: number;
  request: number;
  rule: string;
  slot: number | null;
  count: number;
  expected: string;
  found: string;
  message: string;
  phase: number;
  model: number;
}
export type StepViolation = ViolationEntry & { step: number };

export interface Sampling {
  coupling: string;
  temperature: number;
  top_k: number | null;
  top_p: number | null;
}

/** What a log lacks: sentences by panel, null for what it has; clauses about the batch. */
export interface Gaps {
  time: string | null;
  bytes: string | null;
  cards: string | null;
  masks: (string | null)[];
  choices: boolean; // whether the target's are lacking
  draft: boolean; // whether there is K/V of a draft model
  batch: string[];
  unchecked: string[];
}

export type ByModel<T> = Partial<Record<"target" | "draft", T>>;

export interface FilmJson {
  kinds: string[];
  phases: string[];
  fates: string[];
  head?: string; // in a run with a draft head
  sources?: Source[];
  meta: {
    strategy: string;
    strategy_options: Record<string, any>;
    valid: boolean;
    batch_size: number;
    num_draft_tokens: number | string;
    selector?: string;
    draft_kv?: string;
    eos_token_ids: number[];
    status?: string[];
    decisions: string[];
    sampling: Sampling | null;
    kv_bytes_per_slot: { target: number; draft: number };
    layers?: ByModel<Record<string, number>>;
    windows?: ByModel<Record<string, number>>;
    bytes_per_state?: ByModel<number>;
    lane?: number; // of a run in two lanes
  };
  begins?: number[][]; // of a lane: ms of each phase, on the clock of both
  options: Record<string, unknown>;
  texts: Record<string, string>;
  requests: { prompt: number; tokens: number[]; origins: string; budget: number }[];
  rounds: RoundEntry[];
  lanes: LaneRun[][];
  holes: Range[][];
  signs: string[];
  waits: [request: number, first: number, stop: number][];
  violations: ViolationEntry[] | null;
  gaps?: Gaps; // in a record that lacks something
}

export interface Cell {
  kind: string;
  index: number;
  position: number;
  request: number;
  token: number;
  origin: string;
}

// -- what is drawn, and with what

export type Palette = Record<string, string>;
export type Pen = CanvasPen | SvgPen;

export interface TextLook {
  size?: number;
  weight?: number;
  mono?: boolean;
  fill?: string;
  align?: string;
  max?: number;
}

export interface BoxLook {
  fill?: string;
  stroke?: string;
  width?: number;
  radius?: number;
  dash?: number[];
  hatch?: string;
}

/** A box of a cell; strip: its colour where the cell is too small for an outline. */
export type CellLook = BoxLook & { strip?: string };

export interface LineLook {
  stroke: string;
  width?: number;
  dash?: number[];
  arrow?: boolean;
}

export interface Band {
  y: number;
  h: number;
}

export interface RowLanes {
  y: number;
  height: number;
  open: boolean;
  tokens: Band;
  positions: Band | null;
  target: Band;
  draft: Band;
  states: Band | null;
  arrows: Band | null;
  notes: Band | null;
}

/** What leads to a violation: its words, and where it is. */
export interface Item {
  text: string;
  row: number;
  slot: number | null;
  step: number;
}

/** Something that happens in a run, to which a jump leads; words: which rule is violated, else "". */
export interface RunEvent {
  step: number;
  row: number;
  request: number;
  slot: number | null;
  words: string;
}

/** draft: the number of the draft that is meant, where a slot or an index does not say it. */
export interface Place {
  row: number | null;
  slot: number | null;
  index: number | null;
  draft?: number;
}
/** top, bottom: of the row that the hint explains, in px of the panel, where it is one. */
export type Hit = Place & { hint: string; top?: number; bottom?: number };

export interface TableData {
  caption: string;
  head: string[];
  rows: (string | number | null | undefined)[][];
}

/** What a panel looks at; the same object for all panels of a run. */
export interface View {
  film: Film;
  step: number;
  row: number;
  hover: Place | null;
  palette: Palette;
  progress: number;
  zoom: number | null;
  pan: number;
  tall: number | null; // px of an open row; null: as usual
  tight: boolean; // the legend stands in the lens
  room: number | null; // px of height that the lens has; null: as much as its panel takes
  turn: number; // 0: rows stand by slots, 1: by positions, between: on the way
  other: Film | null;
  pair: Pair | null; // in one panel with the other run
  dense: number; // of two runs' rows, 1: only the chosen ones are open, 2: and the others are low
  differs(request: number, index: number): boolean;
  pick(row: number): void;
  point(place: Place | null): void;
  go(step: number): void;
}

/** Two runs in one panel, as the view of one of them knows them. */
export interface Pair {
  number: number; // of the run
  views: View[]; // of both
  names: string[];
  comparison: Comparison;
}

/** What can be drawn at a width. */
export interface Drawable {
  key(): string;
  describe(): string;
  height(width: number): number;
  draw(pen: Pen, width: number, height?: number): void;
}

export interface Panel extends Drawable {
  empty(): boolean;
  title(): string;
  heading?(): string; // the title, for a place that is narrow
  zoomBy?(direction: number): void;
  reset?(): void;
  table(): TableData;
  hit(x: number, y: number, width: number): Hit | null;
  click?(x: number, y: number, width: number): void;
  drag?(x: number, y: number, width: number): boolean;
  panBy?(slots: number): void;
  steer?(key: string): Hit | null;
}

export interface PanelClass {
  new (view: View): Panel;
  id: string;
}

// -- trees, masks and cards

/** A draft of a tree. rank: its place among the drafts of one parent, from 1. */
export interface TreeNode {
  number: number;
  parent: number;
  depth: number;
  token: number;
  rank: number;
  siblings: number;
  slot: number | null;
}

/** Where a node lies: its middle; own: the target's own token behind the accepted drafts. */
export interface TreePlace {
  number: number;
  parent: number;
  x: number;
  y: number;
  own: boolean;
}

export type Sight = "seen" | "own" | "beyond" | "blank" | "hidden" | "leak" | "hole";
export type Segment = [start: number, stop: number, sight: Sight];

/** node: 1 + the number of a draft of a tree; text: of what was read, which may be no token. */
export interface Query {
  name: string;
  node: number;
  forward: number;
  token: number;
  text: string;
  index: number;
  position: number;
  slot: number;
  until: number;
  segments: Segment[];
}

/** Layers with a window: how many tokens it has, which of the layers have it, wrong slots. */
export interface Windowed {
  width: number;
  layers: string;
  chunks: boolean;
  leaks: Range[];
  holes: Range[];
}

export interface MaskCells {
  kind: number;
  block: boolean;
  step: number;
  row: number;
  slots: number;
  length: number;
  queries: Query[];
  sights: Set<Sight>;
  leaks: Range[];
  holes: Range[];
  drifts: number;
  lost: number;
  window: Windowed | null;
  now(slot: number): number;
  holds(slot: number): Cell | null;
}

/** Where a card lies; bars, lines: how many of these it has; chip: px of the draft's token. */
export interface CardPlace {
  x: number;
  y: number;
  w: number;
  h: number;
  bars: number;
  lines: number;
  chip: number;
}

/** number: of the draft in a tree; index: null while nobody knows where the token goes. */
export interface CardData {
  name: string;
  number?: number | null;
  index: number | null;
  last: boolean;
  draft: number | null;
  q: number | null;
  p: number | null;
  draftChoices: Choice[];
  targetChoices: Choice[];
  fate: string;
  words: string;
  emitted: number | null;
  own: boolean;
}

/** Slots of a mask from left to right; cell: px of a slot; folded: they are too narrow for numbers. */
export interface MaskPart {
  first: number;
  stop: number;
  x: number;
  cell: number;
  folded: boolean;
}

// -- the page and the notebook

export interface Model {
  get(name: string): any;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
}

export interface FigureSettings {
  format: "png" | "svg";
  theme: string;
  width: number;
  scale: number;
  step: number;
  row: number;
  difference?: string; // of two runs, as Python says it
  opening?: { step: number; row: number; by: string }; // by "slots" or "positions"
}

/** What a section asks of the run that it belongs to. */
export interface Desk {
  palette(): Palette;
  scale(): number; // by which the page enlarges the view
  touch(section: any): void;
  /** band: top and bottom of what must stay free, in px of the window. */
  tip(hint: string | null | undefined, event?: MouseEvent, band?: [number, number]): void;
  point(place: Place | null): void;
  pick(row: number): void;
  go(step: number): void;
  happening(step: number): boolean;
  focus(): void;
}

export type { Comparison, Film };
