"""Equal work: what `check` finds in a benchmark's table, and what a benchmark records for it.

Every line is broken once, alone, in a table that otherwise breaks none.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from bench_rows import HOSTILE, row
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.bench import Grid, check, comparisons, make_table, read_table, run_bench
from specviz.bench.equal_work import (
    BROKEN,
    HOLDS,
    LINES,
    PRICE,
    UNKNOWN,
    by_line,
    method_of,
    summary,
)
from specviz.bench.measuring import SharedWork, allocated_bytes, measure, places, reference_of
from specviz.bench.report import report
from specviz.cli.main import main
from specviz.util.files import save_measured

Captured = pytest.CaptureFixture[str]
USED = {"uncounted_s": 0.0, "in_flight": 4.0, "devices": 1.0, "memory_mb": 40.0}
DATA = Path(__file__).parents[1] / "figures" / "data"


def fair(**changes: object) -> pd.DataFrame:
    """Return the table of three methods at B = 4 that all lines allow to be compared.

    `eqspec` is not tried with the drafter of `inplace`, but with one that was trained equally long.
    `changes` replace values of its entries.
    """
    rows = [row("autoregressive", 100.0, verified_a_round=0.0, training_s=0.0, **USED)]
    for strategy, drafter, faster in (("inplace", "model", 30.0), ("eqspec", "eagle3", 0.0)):
        for k, speed in ((5, 150.0), (3, 120.0)):
            used = {"verified_a_round": float(k), "training_s": 600.0, **USED}
            own = {"drafter": drafter, "num_draft_tokens": k}
            rows.append(row(strategy, speed + faster, **own, **used))
    table = make_table(rows).astype(dict.fromkeys(changes, object))
    table.loc[table["strategy"] == "eqspec", list(changes)] = list(changes.values())
    return table


# A line, values of eqspec that break it alone, and why.
BREAKS: list[tuple[str, dict[str, object], str]] = [
    ("outputs", {"prompts": 16}, "prompts: 16 against 8"),
    ("outputs", {"new_tokens": 90}, "new_tokens: 90 against 99"),
    ("verified tokens", {"verified_a_round": 4.0}, "verified_a_round: 4 against 3 / 5"),
    ("drafting time", {"uncounted_s": 1.5}, "uncounted_s: 1.5 against 0"),
    ("requests in flight", {"in_flight": 32.0}, "in_flight: 32 against 4"),
    ("devices", {"devices": 2.0}, "devices: 2 against 1"),
    ("devices", {"threads": 1}, "threads: 1 against 2"),
    ("devices", {"torch": "2.13"}, "torch: 2.13 against 2"),
    ("memory", {"memory_mb": 44.0}, "memory_mb: 44 against 40"),
    ("training", {"training_s": 1200.0}, "training_s: 1200 against 600"),
    ("best settings", {"num_draft_tokens": 5}, "best of K = 5 against 5, 3"),
]


def stored(table: pd.DataFrame, folder: Path) -> Path:
    path, _ = save_measured(table, {}, folder / "results.csv")
    return path


def command(path: Path) -> int:
    return main(["bench", "--check", str(path)])


def states(table: pd.DataFrame, state: str) -> list[tuple[str, str]]:
    """Return the methods and lines in this state."""
    found = comparisons(table)
    found = found[found["state"] == state]
    return list(zip(found["method"], found["line"], strict=True))


def test_a_fair_table_breaks_nothing_and_leaves_nothing_open(
    tmp_path: Path, capsys: Captured
) -> None:
    assert list(dict.fromkeys(line for line, _, _ in BREAKS)) == list(LINES)
    path = stored(fair(), tmp_path)
    assert command(path) == 0
    assert capsys.readouterr().out.endswith("no line is broken in 4 comparisons\n")
    found = comparisons(read_table(path))
    pairs = list(found.groupby(["method", "reference"], sort=False).groups)
    assert pairs == [
        ("inplace", "autoregressive"),
        ("inplace", "eqspec, eagle3"),
        ("eqspec, eagle3", "autoregressive"),
        ("eqspec, eagle3", "inplace"),
    ]
    lines = found.groupby("reference", sort=False)["line"].agg(list)
    assert lines["inplace"] == lines["eqspec, eagle3"] == list(LINES)
    # What concerns drafts alone does not apply to autoregressive decoding.
    assert set(LINES) - set(lines["autoregressive"]) == {"verified tokens", "training"}
    assert set(found["state"]) == {HOLDS}
    assert check(read_table(path)).empty


@pytest.mark.parametrize(("line", "values", "why"), BREAKS)
def test_a_line_that_is_broken_is_named_with_both_values(
    line: str, values: dict[str, object], why: str, tmp_path: Path, capsys: Captured
) -> None:
    table = fair(**values)
    path = stored(table, tmp_path)
    found = check(read_table(path))
    broken: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for each in found[found["state"] == BROKEN].itertuples():
        broken.setdefault((each.method, each.reference), []).append((each.line, each.why))
    assert broken["eqspec, eagle3", "inplace"] == [(line, why)]
    assert [line for line, _ in broken["inplace", "eqspec, eagle3"]] == [line]
    assert ("inplace", "autoregressive") not in broken
    # The same in memory, in the command and on the page.
    pd.testing.assert_frame_equal(check(table), found)
    assert command(path) == 1
    printed = capsys.readouterr()
    assert why in printed.out
    assert f"comparisons are not at equal work: {line} in " in printed.err
    page = report(table, {})
    assert f'<p class="quiet">{line}, ' in page[: page.index("<script>")]


NOTED = {line: next(iter(values)) for line, values, _ in reversed(BREAKS)}
del NOTED["best settings"]  # which no column notes


@pytest.mark.parametrize(("line", "column"), NOTED.items())
def test_what_a_file_does_not_say_is_not_known(line: str, column: str, tmp_path: Path) -> None:
    """Neither a column that is not there nor an empty one breaks a line, or keeps it."""
    for table in (fair().drop(columns=column), fair().assign(**{column: None})):
        path = stored(table, tmp_path)
        assert command(path) == 0
        found = check(read_table(path))
        assert set(found["state"]) == {UNKNOWN}
        (each,) = found[found["reference"] == "inplace"].itertuples()
        assert (each.line, each.why) == (line, f"{column} missing")


def test_settings_are_those_that_were_tried() -> None:
    """One K is not known to be the best. A K that failed was tried and is not compared."""
    one = fair().query("num_draft_tokens != 3")
    assert set(check(one)["why"]) == {"K = 5 only"}
    table = fair(tokens_per_s=150.0)
    failed = (table["strategy"] == "eqspec") & (table["num_draft_tokens"] == 3)
    table.loc[failed, ["tokens_per_s", "verified_a_round"]] = None
    assert check(table).empty


def test_what_breaks_no_line() -> None:
    """A near tie may change the number of tokens, and the same drafter was trained as long."""
    assert check(fair(new_tokens=98, near_ties=1)).empty
    assert check(fair(drafter="model").assign(training_s=None)).empty
    for memory, broken in ((38.1, False), (41.9, False), (37.9, True), (42.2, True)):
        table = fair(memory_mb=memory)
        assert ("eqspec, eagle3", "memory") in states(table, BROKEN) or not broken
        assert check(table).empty != broken


def test_the_smaller_method_has_room_for_a_larger_batch() -> None:
    rows = [
        row("autoregressive", 100.0, 4, memory_mb=30.0),
        row("autoregressive", 170.0, 8, memory_mb=36.0),
        row("autoregressive", 190.0, 16, memory_mb=60.0),
        row("inplace", 150.0, 4, memory_mb=40.0),
    ]
    found = check(make_table(rows))
    ((state, why),) = found.loc[found["line"] == "memory", ["state", "why"]].to_numpy()
    assert state == PRICE
    assert why == (
        "memory_mb: 40 against 30, in which autoregressive has room for B = 8: "
        "170 tokens/s instead of 100"
    )


def test_the_memory_of_a_draft_is_its_price_and_breaks_nothing(
    tmp_path: Path, capsys: Captured
) -> None:
    table = fair()
    table.loc[table["drafter"] == "none", "memory_mb"] = 30.0
    assert command(stored(table, tmp_path)) == 0
    assert capsys.readouterr().out.count("memory_mb: 40 against 30") == 2
    # The price of a draft is no reason for memory that decoding without drafts takes.
    table.loc[table["drafter"] == "none", "memory_mb"] = 50.0
    assert command(stored(table, tmp_path)) == 1


def test_assisted_generation_at_one_row_is_not_compared_at_equal_requests() -> None:
    """Also in a file that does not say how many requests were in flight."""
    rows = [row("hf_assisted", 130.0, 1), row("inplace", 140.0, 1), row("inplace", 500.0, 8)]
    found = check(make_table(rows)).query("state == 'broken'")
    assert found[["batch_size", "line", "why"]].to_numpy().tolist() == [
        [8, "requests in flight", "batch_size: 8 against 1"]
    ]


def test_numbers_are_settings_and_words_are_methods() -> None:
    same = [
        ("exspec:window=8", "exspec"),
        ("exspec:window=8,fallback=wait", "exspec:fallback=wait"),
        ("inplace:selector=tetris+extra=2", "inplace:selector=tetris"),
        ("inplace:selector=tetris+extra=3+score=largest", "inplace:selector=tetris+score=largest"),
        ("hf_assisted:confidence=0.4", "hf_assisted"),
        ("tree:base=eagle3,depth=4,width=3", "tree:base=eagle3"),
        ("inplace:compile=true", "inplace:compile=true"),
        ("synthetic:rates=0.9", "synthetic:rates=0.9"),
        (HOSTILE, HOSTILE),
    ]
    for label, expected in same:
        assert method_of(label) == expected
    # Settings of one method are not compared with each other.
    rows = [row("inplace", speed, num_draft_tokens=k) for k, speed in ((3, 90.0), (5, 95.0))]
    assert comparisons(make_table(rows)).empty


def test_lines_are_counted_with_an_example() -> None:
    table = fair(in_flight=32.0, training_s=None)
    found = comparisons(table)
    assert summary(found) == ("3 of 4 comparisons are not at equal work: requests in flight in 3")
    counted = by_line(found)
    assert counted[["line", "broken", "unknown"]].to_numpy().tolist() == [
        ["requests in flight", 3, 0],
        ["training", 0, 2],
    ]
    assert counted["example"].tolist() == [
        "inplace to eqspec, eagle3, B = 4: in_flight: 4 against 32",
        "inplace to eqspec, eagle3, B = 4: training_s missing",
    ]
    assert summary(comparisons(fair().drop(columns="memory_mb"))).endswith(
        "; in 4 of them a line cannot be known"
    )


BAD_FILES = {
    "no table": (b"a,b\n1,2\n", "but it has no column pair; "),
    "empty": (b"", "cannot be read as CSV"),
    "binary": (b"\x00\xff\xfe\x80" * 40, "cannot be read as CSV"),
    "ragged": (b"a,b\n1,2\n1,2,3\n", "cannot be read as CSV"),
    "a word": ("batch_size", "four", "line 2: batch_size must be an int >= 1, got 'four'; "),
    "half a row": ("batch_size", "1.5", "line 2: batch_size must be an int >= 1, got '1.5'; "),
    "no size": ("batch_size", "", "line 2: batch_size must be an int >= 1, got ''; "),
    "too many": ("batch_size", "1e300", "line 2: batch_size must be an int >= 1, got '1e300'; "),
    "a speed below 0": ("tokens_per_s", "-3", "line 2: tokens_per_s must be a number >= 0"),
    "infinite": ("memory_mb", "inf", "line 2: memory_mb must be a number >= 0, got 'inf'; "),
    "not a number": ("in_flight", "nan", "line 2: in_flight must be a number >= 0, got 'nan'; "),
    "one method": ("strategy", "inplace", "the table has no two methods with a speed at one B"),
}


@pytest.mark.parametrize("case", list(BAD_FILES))
def test_a_file_that_cannot_be_checked(case: str, tmp_path: Path, capsys: Captured) -> None:
    *damage, said = BAD_FILES[case]
    path = tmp_path / "results.csv"
    if len(damage) == 1:
        path.write_bytes(damage[0])  # type: ignore[arg-type]
    else:
        name, value = damage
        table = fair().iloc[:1].astype(object)
        table.loc[0, str(name)] = value
        table.to_csv(path, index=False)
    assert command(path) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("specviz bench: ")
    assert said in printed.err
    assert "; " in printed.err


def test_the_command_checks_a_file_or_a_folder_and_measures_nothing(
    tmp_path: Path, capsys: Captured
) -> None:
    path, _ = save_measured(fair(), {}, tmp_path / "bench.csv")
    for given in (tmp_path, path):
        assert command(given) == 0
        assert capsys.readouterr().out == "\nno line is broken in 4 comparisons\n"
    assert command(tmp_path / "none.csv") == 2
    assert "must be a file, or a folder with a bench.csv; pass" in capsys.readouterr().err
    for option in ("--limit 3", "--fresh", "--out x", "--batch-sizes 2"):
        assert main(["bench", "--check", str(path), *option.split()]) == 2
        said = f"{option.split()[0]} is for measuring, and --check PATH measures nothing; "
        assert capsys.readouterr().err.startswith(f"specviz bench: {said}")


# What a benchmark records for it


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Path]:
    """A benchmark of the tiny pair: the table, and its file."""
    path = tmp_path_factory.mktemp("equal") / "bench.csv"
    lengths: dict[str, Any] = {"max_new_tokens": (8,), "repetitions": 1, "batch_sizes": (2,)}
    given = "synthetic:rates=0.9/0.5/0.5"
    grids = [
        Grid(("autoregressive", "hf_generate"), **lengths),
        Grid(("inplace", "exspec:window=4"), num_draft_tokens=(2, 3), **lengths),
        Grid(("inplace:selector=tetris+extra=1",), num_draft_tokens=(2,), **lengths),
        Grid(("inplace",), num_draft_tokens=(3,), drafters=("lookup", given), **lengths),
    ]
    pair, prompts = make_pair("llama"), make_prompts()[:5]
    table, _ = run_bench(pair, prompts, grids, path, progress=False)
    return table, path


def test_a_draft_on_a_device_of_its_own_is_counted() -> None:
    pair = make_pair("llama")
    elsewhere = copy.deepcopy(pair.draft).to("meta")
    assert [len(places(pair, [draft])) for draft in (pair.draft, elsewhere)] == [1, 2]


@pytest.mark.slow
def test_a_benchmark_records_what_the_lines_need(measured: tuple[pd.DataFrame, Path]) -> None:
    table, _ = measured
    assert (table["failure"] == "").all()
    drafting = table["drafter"] != "none"
    assert (table["devices"] == 1).all()
    pool = table["strategy"].str.startswith("exspec")
    assert set(table["in_flight"][pool]) == {4}
    assert set(table["in_flight"][~pool]) == {2}
    # TETRIS drafts 3 and verifies as many as a uniform K of 2.
    expected = table["num_draft_tokens"].where(drafting, 0).astype(float)
    assert table["verified_a_round"].tolist() == pytest.approx(expected.tolist())
    synthetic = table["drafter"].str.startswith("synthetic")
    assert (table["uncounted_s"][synthetic] > 0).all()
    assert (table["uncounted_s"][~synthetic] == 0).all()
    trained = table["drafter"].isin(["model"]) | synthetic
    assert table["training_s"][trained].isna().all()
    assert (table["training_s"][~trained] == 0).all()


@pytest.mark.slow
def test_memory_is_that_of_the_weights_and_the_run(
    measured: tuple[pd.DataFrame, Path],
) -> None:
    table, _ = measured
    pair = make_pair("llama")
    weights = {}
    for name in ("target", "draft"):
        model = getattr(pair, name)
        weights[name] = sum(each.nbytes for each in model.parameters()) / 1e6
    memory = table.set_index(["strategy", "drafter", "num_draft_tokens"])["memory_mb"]
    alone = memory["autoregressive", "none", 0]
    assert weights["target"] < alone < memory["inplace", "model", 2]
    assert memory["inplace", "model", 2] > weights["target"] + weights["draft"]
    assert memory["inplace", "model", 2] < memory["exspec:window=4", "model", 2]
    # K/V of the draft and its weights are what lookup does without.
    assert memory["inplace", "lookup", 3] < memory["inplace", "model", 3] - weights["draft"]


def test_on_cuda_what_the_allocator_keeps_is_no_memory_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run takes 5 bytes beside 3, after a larger one for which the allocator has 43."""
    peaks = [43]
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: peaks.append(8))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 3)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: peaks[-1])
    for name in ("memory_reserved", "max_memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda _: 43)
    assert allocated_bytes([0], lambda: None) == 5


@pytest.mark.slow
def test_a_stored_table_is_judged_like_the_one_in_memory(
    measured: tuple[pd.DataFrame, Path],
) -> None:
    table, path = measured
    pd.testing.assert_frame_equal(comparisons(read_table(path)), comparisons(table))
    lines = {line for _, line in states(table, BROKEN)}
    assert {"drafting time", "requests in flight", "memory", "best settings"} <= lines


def test_a_head_says_how_long_it_was_trained(tmp_path: Path) -> None:
    pair = sv.load_pair()
    seconds = {}
    for kind in ("eagle3", "medusa"):
        work = SharedWork(pair, reference_of(pair, [[5, 6, 7]], 2))
        grid = Grid(("inplace",), (1,), (2,), (2,), drafters=(kind,))
        (cell,) = grid.cells("embedded")
        seconds[kind] = measure(work, cell)["training_s"]
        folder = Path(sv.__file__).parent / "zoo" / "weights" / "heads" / kind
        assert seconds[kind] == json.loads((folder / "config.json").read_text())["training_s"]
    assert seconds["eagle3"] != seconds["medusa"]


def test_the_shipped_tables_can_be_checked() -> None:
    """bench.csv was measured before memory and requests were recorded, and says so."""
    table = read_table(DATA / "bench.csv")
    compared = ["section", "batch_size", "method", "reference"]
    pairs = comparisons(table)[compared].drop_duplicates()
    unknown = check(table).query("line == 'memory'")
    assert set(unknown["state"]) == {UNKNOWN}
    assert len(unknown) == len(pairs) > 0
    # Compiled methods have no memory, draft models no seconds of training, and hf_assisted neither.
    known = {"memory", "training", "verified tokens", "best settings"}
    assert {line for _, line in states(read_table(DATA / "heads.csv"), UNKNOWN)} <= known
    assert not states(read_table(DATA / "selection-speed.csv"), UNKNOWN)
