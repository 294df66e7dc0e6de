"""The benchmark: grids, baselines, turns, the log of an interrupted run, and the command.

A cell with a wrong text has no speed. test_killed.py kills it.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pandas as pd
import published
import pytest
import torch
from bench_rows import row
from conftest import generate_one_by_one, make_pair, make_prompts

import specviz as sv
from specviz.bench import (
    STANDARD,
    Baseline,
    Grid,
    LoadedPair,
    ShapePair,
    StoredPair,
    Written,
    failures,
    make_table,
    measuring,
    readable,
    run_bench,
    running,
    sections,
    standard,
)
from specviz.bench.cells import Cell, method, proposer
from specviz.bench.measuring import SharedWork, drain, measure, reference_of
from specviz.bench.running import Log
from specviz.bench.sources import HfAssisted, HfGenerate, prompt_ids
from specviz.bench.table import conditions
from specviz.cli.main import main
from specviz.engine.drafters.chains import SyntheticDrafter
from specviz.engine.strategies import STRATEGIES
from specviz.engine.strategies.eqspec import EqSpec
from specviz.engine.threads import computing_with
from specviz.generation.generate import generate_stepwise

SMALL: dict[str, Any] = {"num_draft_tokens": (3,), "max_new_tokens": (8,), "repetitions": 1}
SYNTHETIC = "synthetic:rates=0.9/0.5/0.5"
Captured = pytest.CaptureFixture[str]
Bench = Callable[..., pd.DataFrame]


def small(*strategies: Any, sizes: Sequence[int] = (3,), **axes: Any) -> Grid:
    return Grid(strategies, sizes, **SMALL | axes)


def cell_of(strategy: Any, **axes: Any) -> Cell:
    (cell,) = small(strategy, **axes).cells("own")
    return cell


@pytest.fixture
def few() -> list[list[int]]:
    return make_prompts()[:5]


@pytest.fixture
def work(pair: sv.Pair, few: list[list[int]]) -> SharedWork:
    return SharedWork(pair, reference_of(pair, few, 8))


@pytest.fixture
def bench(pair: sv.Pair, few: list[list[int]]) -> Bench:
    """Return `run_bench` on the tiny pair and its prompts, which returns the table alone."""

    def run(grids: Any, path: Path | None = None, **options: Any) -> pd.DataFrame:
        prompts = options.pop("prompts", few)
        return run_bench(pair, prompts, grids, path, progress=False, **options)[0]

    return run


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The strategies whose cells run from now on, in no time: outcomes are made up.

    Of exspec with a window of 2 each is a failure. test_killed.py measures.
    """
    names: list[str] = []

    def measured(work: SharedWork, cell: Cell, **options: Any) -> Any:
        if cell not in work.memory_mb:
            names.append("warm")
            work.memory_mb[cell] = None
        names.append(cell.strategy)
        outcome = row(cell.strategy, None if cell.strategy == "exspec:window=2" else 100.0)
        yield 0
        return {name: outcome[name] for name in outcome if name not in ("cell", "repetition")}

    monkeypatch.setattr(measuring, "measure_in_turns", measured)
    return names


@pytest.fixture
def without_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "reference_of", lambda *_: SimpleNamespace(tokens=[]))


def indexed(table: pd.DataFrame) -> pd.DataFrame:
    return table.set_index(["strategy", "batch_size"])


# What is measured


def test_a_grid_spans_every_combination_that_there_is() -> None:
    strategies = ("autoregressive", "hf_generate", "hf_assisted", "inplace")
    lengths = ((8, 16), (None, 5))
    drafters = ("model", "lookup")
    grid = Grid(strategies, (1, 4), (3, "auto"), *lengths, drafters, ("float32", None), ("cpu",))
    cells = list(grid.cells("p"))
    each = 2 * 2 * 2  # new tokens, prompt tokens, dtypes
    assert {(cell.pair, cell.device) for cell in cells} == {("p", "cpu")}
    assert len(set(cells)) == len(cells)
    ways: dict[str, list[tuple[str, int | str, int]]] = {name: [] for name in strategies}
    for cell in cells:
        ways[cell.strategy].append((cell.drafter, cell.num_draft_tokens, cell.batch_size))
    undrafted = [("none", 0, 1), ("none", 0, 4)]
    assert sorted(ways["autoregressive"]) == sorted(undrafted * each)
    assert sorted(ways["hf_generate"]) == sorted(undrafted * each)
    assert ways["hf_assisted"] == [("model", 3, 1)] * each
    assert len(ways["inplace"]) == 2 * 2 * 2 * each


def test_the_standard_grids_hold_every_strategy_that_promises_the_text() -> None:
    named = {entry.partition(":")[0] for entry in STANDARD}
    assert {name for name, kind in STRATEGIES.items() if kind().valid} <= named
    grids = standard(batch_sizes=(1, 8), max_new_tokens=(64,))
    cells = [cell for grid in grids for cell in grid.cells("")]
    assert len(cells) == len(set(cells))
    assert {cell.strategy for cell in cells} == set(STANDARD)
    ways = {
        (cell.drafter.partition(":")[0], cell.num_draft_tokens)
        for cell in cells
        if cell.strategy == "inplace"
    }
    assert ways == {*(("model", k) for k in (5, 3, 7, "auto")), ("synthetic", 5)}
    (synthetic,) = {cell.proposer for cell in cells if cell.drafter.startswith("synthetic")}
    assert isinstance(synthetic, SyntheticDrafter)
    assert 1 + sum(synthetic.rates) == pytest.approx(3)


@pytest.mark.parametrize(
    ("entry", "label", "options"),
    [
        ("exspec:window=32", "exspec", {"window": 32}),
        (
            "exspec:window=8, fallback=wait",
            "exspec:window=8,fallback=wait",
            {"window": 8, "fallback": "wait"},
        ),
        (
            published.EqSpecAsPublished(),
            "eqspec:as_published=true",
            {"refill": False, "bonus": False},
        ),
        ("hf_assisted:confidence=0", "hf_assisted:confidence=0", {"confidence": 0}),
        (sv.strategy("exspec", window=8), "exspec:window=8", {"window": 8}),
        (HfGenerate(), "hf_generate", {}),
    ],
    ids=str,
)
def test_methods_are_named_by_what_differs_from_the_default(
    entry: object, label: str, options: dict[str, object]
) -> None:
    found = method(entry)
    assert found.label == label
    assert found.how.options | options == found.how.options
    if isinstance(entry, str):
        assert method(label) == found


def test_a_method_may_ask_something_of_generate() -> None:
    asked = "inplace:deterministic=true,selector=tetris+extra=3+score=largest"
    found = method(asked)
    assert found.label == asked
    chosen = sv.selector("tetris", extra=3, score="largest")
    assert found.generate_options == {"deterministic": True, "selector": chosen}
    assert found.how == sv.strategy("inplace")
    assert proposer("synthetic:rates=0.8/0.6") == sv.drafter("synthetic", rates=[0.8, 0.6])
    for broken in ("tetris+extr=3", "tetris+extra", "nothing", "3"):
        with pytest.raises(ValueError, match="; "):
            method(f"inplace:selector={broken}")


@pytest.mark.parametrize(
    ("change", "begins"),
    [
        ({"pairs": [StoredPair(), StoredPair()]}, "pairs names 'embedded' twice; "),
        ({"turns": 2, "runner": print}, "turns=2, but a runner's cells run on their own; "),
        ({"prompts": [[1], []]}, r"prompts\[1\]=\[\] is empty; "),
        ({"prompts": [[1], [1] * 250]}, r"prompts\[1\] has 250 tokens; "),
        (
            {"grids": small("inplace", devices=("cuda:7",))},
            "device='cuda:7' is not that of the pair, .*; ",
        ),
        (
            {"grids": small("inplace", dtypes=("float64",))},
            "dtype='float64' is not that of the pair, .*; ",
        ),
    ],
    ids=str,
)
def test_arguments_that_cannot_be_used_end_it_before_a_cell_runs(
    change: dict[str, Any], begins: str, pair: sv.Pair, few: list[list[int]], ran: list[str]
) -> None:
    given: dict[str, Any] = {"pairs": pair, "prompts": few, "grids": small("inplace")} | change
    with pytest.raises(ValueError, match=f"^{begins}"):
        run_bench(**given, progress=False)
    assert ran == []


def test_a_stored_pair_may_bring_heads_of_its_own(tmp_path: Path) -> None:
    shipped = Path(sv.__file__).parent / "zoo" / "weights" / "heads" / "medusa"
    own = tmp_path / "own"
    shutil.copytree(shipped, own / "medusa")
    config = own / "medusa" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"training_s": 7}))
    source = StoredPair(heads=str(own))
    assert source.label == "embedded, heads of own"
    heads = source.load("cpu", None).heads
    assert heads["medusa"].training_s == 7
    shipped_too = StoredPair().load("cpu", None).heads
    assert heads.keys() == shipped_too.keys()
    assert heads["eagle3"].training_s == shipped_too["eagle3"].training_s
    shutil.rmtree(own / "medusa")
    with pytest.raises(FileNotFoundError, match="holds no draft head"):
        source.load("cpu", None)


def test_beyond_the_prompts_come_their_halves(pair: sv.Pair) -> None:
    prompts = [[1, 2, 3, 4, 5], [6]]
    source = LoadedPair(pair)
    assert prompt_ids(source, pair, prompts, None, None) == prompts
    assert prompt_ids(source, pair, prompts, 1, None) == prompts[:1]
    assert prompt_ids(source, pair, prompts, 5, None) == [*prompts, [1, 2], [6], [1]]
    assert prompt_ids(source, pair, prompts, None, 3) == [[3, 4, 5], [6]]
    drawn = prompt_ids(ShapePair("vicuna-7b/68m"), pair, [], 3, 7)
    assert [len(prompt) for prompt in drawn] == [7, 7, 7]
    assert drawn == prompt_ids(ShapePair("vicuna-7b/68m"), pair, [], 3, 7)
    assert len(prompt_ids(ShapePair("vicuna-7b/68m"), pair, [], None, None)) == 32


# One cell


@pytest.mark.slow
def test_every_entry_says_what_it_was_measured_on_and_that_its_texts_are_right(
    pair: sv.Pair, few: list[list[int]]
) -> None:
    baselines = ("hf_generate", "hf_assisted")
    strategies = ("autoregressive", "rollback", "exspec:window=4", "inplace")
    grids = [
        small(*strategies, *baselines, sizes=(1, 3)),
        small("inplace", drafters=("lookup", SYNTHETIC)),
    ]
    table, found = run_bench(pair, few[:3], grids, recording=True, progress=False)
    assert len(table) == 2 * 6 - 1 + 2
    assert (table["exact_match"] == 1).all()
    assert (table["failure"] == "").all()
    assert (table["tokens_per_s"] > 0).all()
    assert len(set(table["new_tokens"])) == 1
    assert (table["torch"] == torch.__version__).all()
    assert (table["device"] == "cpu").all()
    assert table["created"].str.match(r"\d{4}-\d\d-\d\dT").all()
    foreign = table["strategy"].isin(baselines)
    for name in ("recorded_tokens_per_s", "round_ms", "draft_ms", "sync_share"):
        assert (table[name].notna() == ~foreign).all()
    ours = table[~foreign]
    assert (ours["round_ms"] > 0).all()
    assert ours["sync_share"].between(0, 0.9).all()
    assert (ours["draft_ms"] < ours["round_ms"]).all()
    length = indexed(table[table["drafter"].isin(["none", "model"])])["mean_acceptance_length"]
    assert length["inplace", 1] == length["inplace", 3] >= length["rollback", 3]
    asked = {"device": "cpu", "dtype": "float32", "prompts": 3, "repetitions": 1}
    asked |= {"recording": True, "num_draft_tokens": 3, "batch_size": [1, 3], "max_new_tokens": 8}
    assert found | asked == found


@pytest.mark.slow
def test_a_speed_without_equal_texts_is_none(bench: Bench) -> None:
    broken = sv.strategy("eqspec", break_invariant="kv")
    name = method(broken).label
    table = bench(small("autoregressive", broken, "exspec:window=2"))
    entries = indexed(table)
    wrong = entries.loc[name, 3]
    assert wrong["exact_match"] < 1
    assert "not explained by noise" in wrong["failure"]
    refused = entries.loc["exspec:window=2", 3]
    assert refused["failure"].startswith("window=2 is smaller than batch_size=3")
    for entry in (wrong, refused):
        assert entry[["tokens_per_s", "tokens_per_s_high"]].isna().all()
    assert entries.loc[("autoregressive", 3), "tokens_per_s"] > 0
    failed = [text.partition(" (")[0] for text in failures(table)]
    assert failed == [f"{name}, B = 3", "exspec:window=2, B = 3"]
    ((_, part),) = sections(table)
    assert readable(part).splitlines()[3].endswith("| failed |")
    with pytest.raises(ValueError, match=r"^no cell could be measured; the first failed "):
        bench(small("exspec:window=2"))


@pytest.mark.slow
def test_near_ties_keep_their_speed_and_are_counted() -> None:
    """In bfloat16, rounding makes some texts differ from the reference.

    On the machine where this test was written, 4 of the 30 texts differed.
    """
    grid = Grid(("hf_generate", "inplace", "eqspec"), (4,), (3,), (24,), repetitions=1)
    table, _ = run_bench(make_pair("llama", torch.bfloat16), make_prompts(), grid, progress=False)
    assert (table["failure"] == "").all()
    assert (table["tokens_per_s"] > 0).all()
    assert table["near_ties"].tolist() == pytest.approx(((1 - table["exact_match"]) * 10).tolist())
    assert table["near_ties"].sum() > 0


def test_what_the_target_does_for_a_synthetic_drafter_is_not_counted(
    work: SharedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = SyntheticDrafter.prepare
    slept = []

    def slow(self: SyntheticDrafter, task: Any, state: Any) -> Any:
        time.sleep(0.05)
        slept.append(0.05)
        return prepare(self, task, state)

    monkeypatch.setattr(SyntheticDrafter, "prepare", slow)
    cell = cell_of("inplace", drafters=(SYNTHETIC,))
    work.memory_mb[cell] = None  # warm
    began = time.perf_counter()
    outcome = measure(work, cell)
    assert outcome["exact_match"] == 1
    assert len(slept) == outcome["rounds"]
    assert outcome["seconds"] < time.perf_counter() - began - sum(slept)


def test_what_generate_is_asked(work: SharedWork, monkeypatch: pytest.MonkeyPatch) -> None:
    """As published, the draft reads the whole row again in every round, here as in `generate`."""
    kept = []

    def watched(*arguments: Any, **options: Any) -> Any:
        result = yield from generate_stepwise(*arguments, **options)
        kept.append(result.meta["keep_draft"])
        return result

    monkeypatch.setattr(measuring, "generate_stepwise", watched)
    assert measure(work, cell_of(published.EqSpecAsPublished()))["failure"] == ""
    assert set(kept) == {False}


def test_a_cell_whose_warm_up_fails_says_why(
    work: SharedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "PeakMeter", None)
    assert measure(work, cell_of("inplace"))["failure"].startswith("TypeError: ")


# Baselines


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_baselines_write_what_the_target_writes_alone(name: str) -> None:
    pair = make_pair(name)
    prompts = make_prompts()
    expected = generate_one_by_one(name, torch.float32, 12)
    assert drain(HfGenerate().write(pair, prompts, 4, 12, 0)).tokens == expected
    before = dict(vars(pair.draft.generation_config))
    alone = drain(HfAssisted(confidence=0).write(pair, prompts, 1, 12, 3))
    assert alone.tokens == expected
    assert vars(pair.draft.generation_config) == before
    lengths = {"num_draft_tokens": 3, "max_new_tokens": 12}
    ours = sv.generate(pair, prompts, batch_size=1, progress=False, **lengths)
    # A forward verifies drafts. Near its budget assisted generation drafts fewer.
    assert abs(alone.forwards - len(ours.rounds["batch"])) <= len(prompts)
    sure = drain(HfAssisted(confidence=0.9).write(pair, prompts, 1, 12, 3))
    assert sure.forwards >= alone.forwards


@dataclass(frozen=True)
class Told(Baseline):
    """A baseline that writes texts which it is given, or texts of ids that are `wrong` more."""

    texts: tuple[tuple[int, ...], ...] = ()
    wrong: int = 0

    name: ClassVar[str] = "told"
    drafts: ClassVar[bool] = True
    on_torch: ClassVar[bool] = False

    @property
    def options(self) -> dict[str, object]:
        return {"wrong": self.wrong}

    def decode(self, pair: sv.Pair, batch: Any, max_new_tokens: int, K: int) -> Written:
        tokens = [
            [(token + self.wrong) % 97 for token in text] for text in self.texts[: len(batch)]
        ]
        return Written(tokens, forwards=K, row_forwards=K * len(batch))


def test_a_baseline_of_your_own_is_measured_and_compared(work: SharedWork) -> None:
    own = Told(tuple(map(tuple, work.reference.tokens)))
    outcome = measure(work, cell_of(own, sizes=(5,)))
    assert outcome["failure"] == ""
    assert outcome["tokens_per_s"] > 0
    assert (outcome["rounds"], outcome["in_flight"]) == (3, 5)
    assert outcome["mean_acceptance_length"] == outcome["new_tokens"] / 15
    assert outcome["verified_a_round"] is outcome["memory_mb"] is None
    assert "round_ms" not in outcome
    cell = cell_of(replace(own, wrong=1), sizes=(5,))
    assert cell.strategy == "told:wrong=1"
    assert "5 of 5 texts differ" in measure(work, cell)["failure"]


# Turns

TURNS = small("autoregressive", "hf_generate", "eqspec", "exspec:window=2", "inplace")


@pytest.mark.slow
def test_cells_that_take_turns_write_and_take_as_long_as_each_alone(
    pair: sv.Pair, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of eqspec takes 0.2 s longer, which slows no other cell."""
    alone = bench(TURNS)
    attention: list[str] = []
    steps: list[tuple[str, int]] = []
    plain = HfGenerate.decode

    def decode(self: HfGenerate, asked: sv.Pair, *arguments: Any) -> Written:
        attention.append(asked.target.config._attn_implementation)
        return plain(self, asked, *arguments)

    def watched(*arguments: Any, strategy: Any, **options: Any) -> Any:
        running = generate_stepwise(*arguments, strategy=strategy, **options)
        while True:
            try:
                written = next(running)
            except StopIteration as end:
                return end.value
            time.sleep(0.2 if strategy.name == "eqspec" else 0)
            steps.append((strategy.name, written))
            yield written

    monkeypatch.setattr(HfGenerate, "decode", decode)
    monkeypatch.setattr(measuring, "generate_stepwise", watched)
    monkeypatch.setattr(measuring, "warm_up", lambda work, cell: None)
    table = bench(TURNS, turns=4)
    same = ["strategy", "exact_match", "mean_acceptance_length", "rounds", "new_tokens", "failure"]
    pd.testing.assert_frame_equal(table[same], alone[same])
    assert "window=2" in table["failure"][3]
    total = table["new_tokens"][0]
    most = 3 * 4  # of one round: three rows, K + 1 tokens each
    latest = dict.fromkeys(("autoregressive", "eqspec", "inplace"), 0)
    for name, written in steps:
        latest[name] = written
        assert max(latest.values()) - min(latest.values()) <= total / 4 + 2 * most, steps
    assert set(latest.values()) == {total}
    assert set(attention) == {pair.target.config._attn_implementation} == {"sdpa"}
    seconds = table["new_tokens"] / table["tokens_per_s"]
    slept = 0.2 * sum(name == "eqspec" for name, _ in steps)
    assert seconds[2] > slept > 0.5
    assert max(seconds[[0, 1, 4]]) < slept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turns", "from_round", "error", "said"),
    [
        (1, 0, torch.OutOfMemoryError("no room"), "MemoryError: B = 3 does not fit into"),
        (4, 2, RuntimeError("the third is too much"), "RuntimeError: the third is too much"),
    ],
)
def test_a_cell_that_breaks_stops_no_other(
    turns: int,
    from_round: int,
    error: Exception,
    said: str,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = EqSpec.synchronise

    def broken(self: EqSpec, state: Any) -> None:
        if state.round >= from_round:
            raise error
        plain(self, state)

    monkeypatch.setattr(EqSpec, "synchronise", broken)
    failure = bench(TURNS, turns=turns)["failure"]
    assert failure[2].startswith(said)
    assert failure[[0, 1, 4]].tolist() == [""] * 3


# A run


@pytest.mark.usefixtures("without_reference")
def test_repetitions_are_interleaved_and_every_cell_is_warmed_up_once(
    bench: Bench, ran: list[str]
) -> None:
    table = bench([small("autoregressive", "inplace", repetitions=2), small("inplace", "eqspec")])
    first = ["warm", "autoregressive", "warm", "inplace", "warm", "eqspec"]
    assert ran == [*first, "autoregressive", "inplace"]
    assert table["repetitions"].tolist() == [2, 2, 1]


def interrupt(bench: Bench, grid: Grid, path: Path, after: int) -> None:
    """Run a benchmark that is interrupted after so many rows."""

    def add(self: Log, row: dict[str, Any]) -> None:
        original(self, row)
        if len(self.measurements) == after:
            raise KeyboardInterrupt

    original = Log.add
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "add", add)
        with pytest.raises(KeyboardInterrupt):
            bench(grid, path)


@pytest.mark.usefixtures("without_reference")
def test_a_cell_that_failed_is_not_repeated(bench: Bench, ran: list[str], tmp_path: Path) -> None:
    """Neither in the same run nor when an interrupted run goes on."""
    grid = small("exspec:window=2", "inplace", repetitions=2)
    bench(grid)
    assert ran == ["warm", "exspec:window=2", "warm", "inplace", "inplace"]
    interrupt(bench, grid, tmp_path / "bench.csv", after=1)
    ran.clear()
    table = bench(grid, tmp_path / "bench.csv")
    assert ran == ["warm", "inplace", "inplace"]
    assert table["failure"].astype(bool).tolist() == [True, False]


@pytest.mark.usefixtures("without_reference")
def test_an_interrupted_run_goes_on_and_may_be_extended(
    bench: Bench, ran: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "new folder" / "bench.csv"
    interrupt(bench, small("autoregressive", "inplace", repetitions=2), path, after=3)
    ran.clear()
    table = bench(small("autoregressive", "inplace", "eqspec", repetitions=2), path)
    assert ran == ["warm", "eqspec", "warm", "inplace", "eqspec"]
    assert table["strategy"].tolist() == ["autoregressive", "inplace", "eqspec"]
    assert table["repetitions"].tolist() == [2, 2, 2]
    assert json.loads(path.with_suffix(".json").read_text())["repetitions"] == 2
    assert sorted(file.name for file in path.parent.iterdir()) == ["bench.csv", "bench.json"]
    ran.clear()
    with pytest.raises(ValueError, match=r"bench\.csv holds a finished benchmark; .*--fresh"):
        bench(small("inplace"), path)
    assert ran == []
    bench(small("inplace"), path, fresh=True)
    assert ran == ["warm", "inplace"]


@pytest.mark.usefixtures("without_reference")
@pytest.mark.parametrize("change", ["prompts", "limit", "recording", "turns", "threads"])
def test_other_conditions_are_refused_or_begin_from_nothing(
    change: str, bench: Bench, few: list[list[int]], ran: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "bench.csv"
    interrupt(bench, small("inplace", repetitions=2), path, after=1)
    ran.clear()
    others = {"prompts": few[1:], "recording": True}
    threads = 2 if change == "threads" else torch.get_num_threads()
    options = {} if change == "threads" else {change: others.get(change, 2)}
    said = rf"partial was begun with {change}=.*; go on as it was begun, or discard it"
    with computing_with(threads):
        with pytest.raises(ValueError, match=said):
            bench(small("inplace"), path, **options)
        assert ran == []
        bench(small("inplace"), path, fresh=True, **options)
    assert ran == ["warm", "inplace"]


def test_a_log_holds_whole_lines_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "log"
    Log(path, {"x": (1, 2)}).add({"a": "ä\n"})
    assert path.read_bytes() == b'{"x": [1, 2]}\n{"a": "\\u00e4\\n"}\n'
    path.write_bytes(path.read_bytes() + b'{"a": 2}')
    log = Log(path, {"x": (1, 2)})
    assert log.measurements == [{"a": "ä\n"}]
    log.add({"a": 3})
    assert path.read_bytes().endswith(b'\\n"}\n{"a": 3}\n')
    path.write_bytes(b'{"x": [1')  # killed while it wrote the first line
    log = Log(path, {"x": 1})
    assert log.measurements == []
    log.add({"a": 4})
    assert path.read_bytes() == b'{"x": 1}\n{"a": 4}\n'
    for bad in (b"nonsense\n", b"3\n"):
        path.write_bytes(b'{"x": 1}\n' + bad)
        with pytest.raises(ValueError, match=r"^line 2 of .* must be a JSON object of a benchmark"):
            Log(path, {"x": 1})


# The table


def test_medians_spread_and_ratios() -> None:
    """Each ratio is taken within its repetition; assisted generation has only the first."""
    rows = [row("autoregressive", speed, repetition=i) for i, speed in enumerate((100, 50, 60))]
    rows += [row("inplace", speed, repetition=i) for i, speed in enumerate((120, 90, 300))]
    rows += [row("hf_assisted", 30, size=1), row("hf_assisted", 40, size=1, num_draft_tokens=3)]
    rows += [row("inplace", 10, max_new_tokens=128), row("eqspec", 90, round_ms=5.0)]
    rows.append(row("eqspec", None, repetition=1, exact_match=0.5, round_ms=None))
    table = make_table(rows)
    entry = indexed(table[table["max_new_tokens"] == 64]).loc["inplace", 4]
    speeds = ["tokens_per_s", "tokens_per_s_low", "tokens_per_s_high", "repetitions"]
    assert entry[speeds].tolist() == [120, 90, 300, 3]
    ratios = [f"ratio_to_autoregressive{end}" for end in ("", "_low", "_high")]
    ratios.append("ratio_to_hf_assisted")
    assert entry[ratios].tolist() == [1.8, 1.2, 5, 3]
    assert entry["created"] == "2026-01-03T00:00:00"
    other = table[table["max_new_tokens"] == 128].iloc[0]
    assert other[ratios].isna().all()
    failed = indexed(table).loc["eqspec", 4]
    assert failed[["failure", "exact_match", "repetitions"]].tolist() == ["it <broke>", 0.5, 0]
    assert failed[["tokens_per_s", *ratios, "round_ms"]].isna().all()
    said = conditions(rows)
    assert said["num_draft_tokens"] == [5, 3]
    assert said["versions"] == {"specviz": "1", "torch": "2", "transformers": "5", "python": "3"}


def test_the_readable_table_names_what_differs() -> None:
    rows = [
        row("autoregressive", 100.0),
        row("inplace", 150.4),
        row("inplace", 160.0, num_draft_tokens="auto"),
        row("inplace", 90.0, size=8),
        row("inplace", 120.0, drafter="synthetic:rates=0.8"),
        row("exspec:window=8", None),
    ]
    ((heading, part),) = sections(make_table(rows))
    assert heading == "p, cpu, float32, 64 new tokens"
    assert readable(part).splitlines() == [
        "| tokens/s (ratio to `autoregressive`) | B = 4 | B = 8 |",
        "|---|---|---|",
        "| `autoregressive` | 100 (1.00) | - |",
        "| `inplace` | 150 (1.50) | 90 |",
        "| `inplace`, K = auto | 160 (1.60) | - |",
        "| `inplace`, synthetic | 120 (1.20) | - |",
        "| `exspec:window=8` | failed | - |",
    ]


# The command


@pytest.mark.slow
def test_the_command_measures_prints_and_writes(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = Path("runs/bench")  # where nothing is named
    options = (
        "--strategies autoregressive hf_generate inplace exspec:window=4 --batch-sizes 2 8 "
        "--limit 4 --repetitions 1 --max-new-tokens 3 --device cpu --prompt-tokens 12 "
        "--num-draft-tokens 2 --report page.html"
    )
    assert main(["bench", *options.split()]) == 0
    table = pd.read_csv(data / "bench.csv", keep_default_na=False)
    names = ["autoregressive", "hf_generate", "inplace", "exspec:window=4"]
    assert table["strategy"].tolist() == names * 2
    assert table["failure"].str.startswith("window=4 is smaller").tolist() == [False] * 7 + [True]
    printed = capsys.readouterr().out
    assert "| `exspec:window=4` | " in printed
    where = "embedded, cpu, float32, 3 new tokens, prompts of at most 12 tokens"
    assert f"no speed: exspec:window=4, B = 8 ({where}): window=4 is" in printed
    assert "comparisons are not at equal work: " in printed
    found = json.loads((data / "bench.json").read_text())
    asked = {"device": "cpu", "dtype": "float32", "prompts": 4, "max_new_tokens": 3}
    assert found | asked | {"repetitions": 1, "num_draft_tokens": 2} == found
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")
    assert sorted(file.name for file in data.iterdir()) == ["bench.csv", "bench.json"]


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        ("--target .", "--target . needs a draft; give --draft too"),
        ("--shapes qwen3-8b/0.6b --device-map auto", "--device-map auto and --shapes exclude"),
        ("--shapes qwen3-8b/0.6b --spec-bench q", "--spec-bench q and --shapes exclude each other"),
        ("--heads /nowhere", "folder='/nowhere' does not exist"),
        ("--strategies inplace --rates 0.5", "--rates 0.5 needs a synthetic drafter; give"),
        ("--cpus 1", "--cpus 1 needs Ray; give --ray too"),
        ("--ray local --gpus 0", "--gpus must be an int >= 1, got 0; "),
        ("--rates 0.5 0.8", "--rates must not rise, got [0.5, 0.8]"),
        ("--prompt-tokens 0", "--prompt-tokens must be an int >= 1, got 0; "),
        ("--repetitions 0", "--repetitions must be an int >= 1, got 0; "),
        ("--turns 0", "--turns must be an int >= 1, got 0; "),
        ("--strategies hf_assisted --batch-sizes 4", "--strategies must leave a cell, got none: "),
        ("--strategies hf_assisted:confidence=1", "confidence must be a number >= 0 and < 1"),
        ("--strategies hf_generate:compile=true", "--strategies 'hf_generate' takes no option"),
        ("--strategies exspec:window", "the options in 'exspec:window' must be option=value"),
        ("--limit 0", "--limit must be an int >= 1, got 0; "),
        ("--device tpu", "--device 'tpu' is unknown; "),
    ],
)
def test_what_the_command_refuses(
    arguments: str, begins: str, tmp_path: Path, capsys: Captured
) -> None:
    assert main(["bench", *arguments.split(), "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    *bar, said = printed.err.splitlines()
    assert said.startswith(f"specviz bench: {begins}")
    assert all(line.startswith("bench:   0%") for line in bar if line)
    assert not list(tmp_path.iterdir())


def test_what_the_command_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs, prompts and grids of the options, and what Ctrl-C leaves."""
    calls: list[Any] = []

    def interrupted(pairs: Any, prompts: Any, grids: Any, path: Path, **options: Any) -> Any:
        calls.append((pairs, prompts, grids))
        raise KeyboardInterrupt

    monkeypatch.setattr("specviz.bench.run_bench", interrupted)
    file = tmp_path / "question.jsonl"
    questions = []
    for i in range(6):
        questions.append({"question_id": i, "category": "ab"[i // 3], "turns": [f"x = {i}"]})
    file.write_text("\n".join(map(json.dumps, questions)))
    out = ["--out", str(tmp_path / "out")]
    assert main(["bench", "--spec-bench", str(file), "--limit", "4", *out]) == 130
    spread = ["x = 0", "x = 1", "x = 3", "x = 4"]
    assert calls[-1] == ([StoredPair()], spread, standard())
    assert main(["bench", "--shapes", "qwen3-8b/0.6b", "--prompt-tokens", "9", *out]) == 130
    pairs, prompts, (grid,) = calls[-1]
    assert (pairs, prompts) == ([ShapePair("qwen3-8b/0.6b")], [])
    assert (grid.prompt_tokens, grid.drafters) == ((9,), ["synthetic:rates=0.7/0.5/0.4/0.25/0.15"])
    assert "hf_assisted" not in grid.strategies


def test_a_missing_ray_is_named(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specviz.bench.on_ray.find_spec", lambda name: None)
    assert main(["bench", "--ray", "local"]) == 2
    said = 'which is not installed; run: pip install "specviz[ray]"\n'
    assert capsys.readouterr().err.endswith(said)
