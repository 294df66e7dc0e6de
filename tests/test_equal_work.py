"""Equal work: `specviz bench --check`, and the marks in tables.

Every line is broken once, alone, in a table that otherwise breaks none.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from bench_rows import HOSTILE, row
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.bench import Grid, comparisons, make_table, read_table, readable, run_bench, sections
from specviz.bench.cells import measure
from specviz.bench.equal_lines import BROKEN, HOLDS, LINES, UNKNOWN
from specviz.bench.equal_work import method_of
from specviz.bench.marks import LETTERS
from specviz.bench.outcome import SharedWork, reference_of
from specviz.bench.report import report
from specviz.bench.resources import MemoryMeter
from specviz.cli.main import main
from specviz.util.files import save_measured

Captured = pytest.CaptureFixture[str]
Change = Callable[[pd.DataFrame], pd.DataFrame]
USED = {"uncounted_s": 0.0, "in_flight": 4.0, "devices": 1.0, "memory_mb": 40.0}


def fair() -> pd.DataFrame:
    """Return the table of three methods at B = 4 that all lines allow to be compared.

    `eqspec` is not tried with the drafter of `inplace`, but with one that was trained equally long.
    """
    rows = [row("autoregressive", 100.0, verified_a_round=0.0, training_s=0.0, **USED)]
    for strategy, drafter, faster in (("inplace", "model", 30.0), ("eqspec", "eagle3", 0.0)):
        for k, speed in ((5, 150.0), (3, 120.0)):
            used = {"verified_a_round": float(k), "training_s": 600.0, **USED}
            own = {"drafter": drafter, "num_draft_tokens": k}
            rows.append(row(strategy, speed + faster, **own, **used))
    return make_table(rows)


def set_to(strategy: str, **values: object) -> Change:
    """Return a change that sets columns of one strategy's entries."""

    def change(table: pd.DataFrame) -> pd.DataFrame:
        for name, value in values.items():
            table[name] = table[name].astype(object)
            table.loc[table["strategy"] == strategy, name] = value
        return table

    return change


def without(strategy: str, k: int) -> Change:
    """Return a change that takes one entry out."""
    return lambda table: table[
        (table["strategy"] != strategy) | (table["num_draft_tokens"].astype(str) != str(k))
    ]


# Line: a change that breaks it alone, and both values as they are said.
BREAKS: dict[str, list[tuple[Change, str]]] = {
    "outputs": [
        (set_to("eqspec", prompts=16), "16 against 8 prompts"),
        (set_to("eqspec", new_tokens=90), "90 against 99 new tokens"),
    ],
    "verified tokens": [
        (set_to("eqspec", verified_a_round=4.0), "4 drafts a row and round against 3 / 5"),
    ],
    "drafting time": [(set_to("eqspec", uncounted_s=1.5), "1.5 s left out against 0 s")],
    "requests in flight": [(set_to("eqspec", in_flight=32.0), "32 against 4 requests")],
    "devices": [
        (set_to("eqspec", devices=2.0), "devices: 2 against 1"),
        (set_to("eqspec", threads=1), "threads: 1 against 2"),
        (set_to("eqspec", torch="2.13"), "torch: 2.13 against 2"),
    ],
    "memory": [(set_to("eqspec", memory_mb=44.0), "44 MB against 40 MB")],
    "training": [(set_to("eqspec", training_s=1200.0), "1200 against 600 s")],
    "best settings": [(without("eqspec", 3), "best of K = 5 against 5, 3")],
}
CASES = [(line, change, values) for line, cases in BREAKS.items() for change, values in cases]
NAMES = [f"{line}: {values}" for line, _, values in CASES]


def stored(table: pd.DataFrame, folder: Path) -> Path:
    path, _ = save_measured(table, {}, folder / "results.csv")
    return path


def check(path: Path, *more: str) -> int:
    return main(["bench", "--check", str(path), *more])


def test_every_line_has_a_table_that_breaks_it() -> None:
    assert list(BREAKS) == list(LINES)
    assert sorted(set(LETTERS.values())) == list("abcdefgh")


def test_a_fair_table_breaks_nothing_and_leaves_nothing_open(
    tmp_path: Path, capsys: Captured
) -> None:
    path = stored(fair(), tmp_path)
    assert check(path) == 0
    said = capsys.readouterr().out
    found = comparisons(read_table(path))
    assert [(each.method, each.reference) for each in found] == [
        ("inplace", "autoregressive"),
        ("inplace", "eqspec, eagle3"),
        ("eqspec, eagle3", "autoregressive"),
        ("eqspec, eagle3", "inplace"),
    ]
    applying = {each.reference: [one.line for one in each.of(HOLDS)] for each in found}
    assert applying["inplace"] == applying["eqspec, eagle3"] == list(LINES)
    # What concerns drafts alone does not apply to autoregressive decoding.
    assert set(LINES) - set(applying["autoregressive"]) == {"verified tokens", "training"}
    assert not any(each.of(BROKEN) or each.of(UNKNOWN) for each in found)
    assert said.endswith("no line is broken in 4 comparisons\n")
    assert "[" not in readable(read_table(path))


@pytest.mark.sweep(11)
@pytest.mark.parametrize(("line", "change", "values"), CASES, ids=NAMES)
def test_a_line_that_is_broken_is_named_with_both_values(
    line: str, change: Change, values: str, tmp_path: Path, capsys: Captured
) -> None:
    path = stored(change(fair()), tmp_path)
    assert check(path) == 1
    printed = capsys.readouterr()
    assert f"{line} ({values})" in printed.out
    assert "comparisons are not at equal work: " in printed.err
    broken: dict[tuple[str, str], list[str]] = {}
    for each in comparisons(read_table(path)):
        broken[each.method, each.reference] = [one.line for one in each.of(BROKEN)]
    assert broken["eqspec, eagle3", "inplace"] == broken["inplace", "eqspec, eagle3"] == [line]
    assert broken["inplace", "autoregressive"] == []


@pytest.mark.sweep(11)
@pytest.mark.parametrize(("line", "change", "values"), CASES, ids=NAMES)
def test_tables_mark_what_breaks_a_line(line: str, change: Change, values: str) -> None:
    table = change(fair())
    mark = f"[{LETTERS[line]}]"
    text = readable(table)
    marked = [
        one.split("|")[1].strip(" `") for one in text.splitlines() if mark in one and "|" in one
    ]
    assert any(name.startswith("eqspec") for name in marked)
    assert "autoregressive" not in marked
    note = text.splitlines()[-1]
    assert note.startswith(f"{mark} not at equal {line}: ")
    assert " against " in note
    page = report(table, {})
    body = page[: page.index("<script>")]
    assert f" {mark}</td>" in body
    assert f'<p class="quiet">{mark} not at equal {line}: ' in body


@pytest.mark.sweep(7)
@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("outputs", "prompts"),
        ("verified tokens", "verified_a_round"),
        ("drafting time", "uncounted_s"),
        ("requests in flight", "in_flight"),
        ("devices", "devices"),
        ("memory", "memory_mb"),
        ("training", "training_s"),
    ],
)
def test_what_a_file_does_not_say_is_not_known(line: str, column: str, tmp_path: Path) -> None:
    """Neither a column that is not there nor an empty one breaks a line, or keeps it."""
    empty = fair().assign(**{column: None})
    for table in (fair().drop(columns=column), empty):
        path = stored(table, tmp_path)
        assert check(path) == 0
        found = comparisons(read_table(path))
        (each,) = (one for one in found if one.reference == "inplace")
        assert [(one.line, column in one.why) for one in each.of(UNKNOWN)] == [(line, True)]


def test_one_k_is_not_known_to_be_the_best() -> None:
    table = without("inplace", 3)(without("eqspec", 3)(fair()))
    for each in comparisons(table):
        assert [(one.line, one.why) for one in each.of(UNKNOWN)] == [
            ("best settings", "K = 5 only")
        ]


def test_a_k_that_failed_was_tried_and_is_not_compared() -> None:
    table = set_to("eqspec", tokens_per_s=150.0)(fair())
    failed = (table["strategy"] == "eqspec") & (table["num_draft_tokens"] == 3)
    table.loc[failed, ["tokens_per_s", "verified_a_round"]] = None
    found = {each.reference: each for each in comparisons(table)}
    assert found["inplace"].of(BROKEN) == found["inplace"].of(UNKNOWN) == []


def test_near_ties_may_change_the_number_of_tokens() -> None:
    table = set_to("eqspec", new_tokens=98, near_ties=1)(fair())
    assert not any(each.of(BROKEN) for each in comparisons(table))


def test_values_within_five_percent_are_equal() -> None:
    for memory, broken in ((38.1, False), (41.9, False), (37.9, True), (42.2, True)):
        table = set_to("eqspec", memory_mb=memory)(fair())
        assert any(each.of(BROKEN) for each in comparisons(table)) == broken


def test_the_same_drafter_was_trained_as_long() -> None:
    """Also where no length is stated."""
    table = set_to("eqspec", drafter="model")(fair()).assign(training_s=None)
    found = {each.reference: each for each in comparisons(table)}
    assert "training" in [one.line for one in found["inplace"].of(HOLDS)]


def test_the_smaller_method_is_told_of_the_batch_that_its_memory_has_room_for() -> None:
    rows = [
        row("autoregressive", 100.0, 4, memory_mb=30.0),
        row("autoregressive", 170.0, 8, memory_mb=36.0),
        row("autoregressive", 190.0, 16, memory_mb=60.0),
        row("inplace", 150.0, 4, memory_mb=40.0),
    ]
    (found,) = comparisons(make_table(rows), ["memory"])
    (result,) = found.of(BROKEN)
    assert result.why == (
        "40 MB against 30 MB, in which autoregressive has room for B = 8: "
        "170 tokens/s instead of 100"
    )


def test_assisted_generation_at_one_row_is_not_compared_at_equal_requests() -> None:
    """Also in a file that does not say how many requests were in flight."""
    rows = [row("hf_assisted", 130.0, 1), row("inplace", 140.0, 1), row("inplace", 500.0, 8)]
    broken = {}
    for each in comparisons(make_table(rows)):
        if each.place == "ratio_to_hf_assisted":
            broken[each.batch_size] = [(one.line, one.why) for one in each.of(BROKEN)]
    assert broken == {1: [], 8: [("requests in flight", "B = 8 against 1")]}


def test_numbers_are_settings_and_words_are_methods() -> None:
    same = [
        ("exspec:window=8", "exspec"),
        ("exspec:window=8,fallback=wait", "exspec:fallback=wait"),
        ("inplace:selector=tetris+extra=2", "inplace:selector=tetris"),
        ("inplace:selector=tetris+extra=3+score=largest", "inplace:selector=tetris+score=largest"),
        ("hf_assisted:confidence=0", "hf_assisted"),
        ("tree:base=eagle3,depth=4,width=3", "tree:base=eagle3"),
        ("inplace:compile=true", "inplace:compile=true"),
        ("synthetic:rates=0.9", "synthetic:rates=0.9"),
        (HOSTILE, HOSTILE),
    ]
    for label, expected in same:
        entry = make_table([row(label, 1.0, drafter=label)]).iloc[0]
        assert method_of(entry) == (expected, expected)


def test_settings_of_one_method_are_not_compared_with_each_other() -> None:
    rows = [row("inplace", speed, num_draft_tokens=k) for k, speed in ((3, 90.0), (5, 95.0))]
    assert comparisons(make_table(rows)) == []


def test_lines_may_be_chosen(tmp_path: Path, capsys: Captured) -> None:
    path = stored(set_to("eqspec", memory_mb=80.0)(fair()), tmp_path)
    assert check(path, "--lines", "training", "best settings") == 0
    assert "memory" not in capsys.readouterr().out
    assert check(path, "--lines", "memory") == 1


BAD_FILES = {
    "no table": (b"a,b\n1,2\n", "but it has no column pair; "),
    "empty": (b"", "cannot be read as CSV"),
    "binary": (b"\x00\xff\xfe\x80" * 40, "cannot be read as CSV"),
    "ragged": (b"a,b\n1,2\n1,2,3\n", "cannot be read as CSV"),
    "a word": ("batch_size", "four", "line 2: batch_size must be an int >= 1, got 'four'; "),
    "half a row": ("batch_size", "1.5", "line 2: batch_size must be an int >= 1, got '1.5'; "),
    "no size": ("batch_size", "", "line 2: batch_size must be an int >= 1, got ''; "),
    "no row": ("batch_size", "0", "line 2: batch_size must be an int >= 1, got '0'; "),
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
    assert check(path) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("specviz bench: ")
    assert said in printed.err
    assert "; " in printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "--check none.csv",
            "--check 'none.csv' must be a file, or a folder with a bench.csv; pass",
        ),
        (
            "--check .",
            "--check '.' must be a file, or a folder with a bench.csv; pass the bench.csv",
        ),
        ("--lines memory", "--lines memory needs --check; give --check too"),
        ("--check PATH --lines speed", "--lines 'speed' is unknown; choose one of outputs, "),
        ("--check PATH --limit 3", "--limit is for measuring, and --check PATH measures nothing; "),
        ("--check PATH --fresh", "--fresh is for measuring, and --check PATH measures nothing; "),
        ("--check PATH --out x", "--out is for measuring, and --check PATH measures nothing; "),
    ],
)
def test_options_that_do_not_fit(
    arguments: str, said: str, tmp_path: Path, capsys: Captured
) -> None:
    path = str(stored(fair(), tmp_path))
    assert main(["bench", *(path if word == "PATH" else word for word in arguments.split())]) == 2
    assert capsys.readouterr().err.startswith(f"specviz bench: {said}")


def test_a_folder_stands_for_its_bench_csv(tmp_path: Path, capsys: Captured) -> None:
    path, _ = save_measured(fair(), {}, tmp_path / "bench.csv")
    said = []
    for given in (tmp_path, path):
        assert check(given) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "outputs" in said[0]


def test_a_reason_that_all_share_stands_once_below_the_table(
    tmp_path: Path, capsys: Captured
) -> None:
    table = fair().drop(columns="memory_mb")
    table.loc[table["strategy"] == "eqspec", "training_s"] = None
    table.loc[table["strategy"] == "inplace", "drafter"] = "clover"
    assert check(stored(table, tmp_path), "--lines", "memory", "training") == 0
    *rows, _, shared, _, _ = capsys.readouterr().out.splitlines()
    assert shared == (
        "Why a line is not known: memory (memory_mb is missing); training (training_s is missing)"
    )
    unknown = [row.split(" | ")[4].rstrip(" |") for row in rows[5:]]
    assert unknown == ["memory", "memory; training"] * 2


def test_reasons_that_differ_stand_in_their_rows(tmp_path: Path, capsys: Captured) -> None:
    table = without("inplace", 3)(without("eqspec", 5)(fair()))
    assert check(stored(table, tmp_path), "--lines", "best settings") == 1
    said = capsys.readouterr().out
    assert "Why a line is not known" not in said
    for reason in ("best settings (K = 5 only)", "best settings (K = 3 only)"):
        assert said.count(reason) == 1


def test_help_says_what_check_does(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--check [PATH]" in text
    assert "compared at equal work" in text
    assert "exit with 1 if not" in text


@pytest.mark.parametrize(("change", "status"), [(lambda table: table, 0), (CASES[5][1], 1)])
def test_a_run_is_checked_once_its_table_is_written(
    change: Change,
    status: int,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = change(fair())

    def measured(pairs: Any, prompts: Any, grids: Any, path: Path, **_: Any) -> Any:
        save_measured(table, {"device": "cpu"}, path)
        return table, {"device": "cpu"}

    monkeypatch.setattr("specviz.bench.run_bench", measured)
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--out", "x", "--check"]) == status
    assert sorted(file.name for file in Path("x").iterdir()) == [
        "bench.csv", "bench.html", "bench.json",
    ]  # fmt: skip
    said = capsys.readouterr().out
    assert "| B | compared | holds | broken | not known |" in said
    assert main(["bench", "--out", "x"]) == 0
    assert "| holds |" not in capsys.readouterr().out


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


def test_on_cuda_what_the_allocator_keeps_for_later_is_no_memory_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Allocated bytes count, from where the run began. Reserved ones are those of earlier runs."""
    held = {"memory_allocated": 4e6, "max_memory_allocated": 9e6}
    held |= {"memory_reserved": 70e6, "max_memory_reserved": 80e6}
    for name, size in held.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, size=size: size)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda *_: None)
    meter = object.__new__(MemoryMeter)
    vars(meter).update(peak_mb=None, _weights=3e6, _gpus=[0], _before=0, _watch=None, _known=True)
    with meter:
        pass
    assert meter.peak_mb == 9 - 4 + 3


@pytest.mark.slow
def test_a_stored_table_is_judged_like_the_one_in_memory(
    measured: tuple[pd.DataFrame, Path],
) -> None:
    table, path = measured
    assert comparisons(read_table(path)) == comparisons(table)
    lines = {one.line for each in comparisons(table) for one in each.of(BROKEN)}
    assert {"drafting time", "requests in flight", "memory", "best settings"} <= lines


def test_reasons_round_as_a_saved_table_does(tmp_path: Path) -> None:
    """Rounded to five digits and then to three, this is 0.0103; at once it would be 0.0102."""
    table = fair()
    table["uncounted_s"] = 0.0
    table.loc[table["strategy"] == "inplace", "uncounted_s"] = 0.01024999999
    path, _ = save_measured(table, {}, tmp_path / "bench.csv")
    found = comparisons(table)
    assert any("0.0103 s" in one.why for each in found for one in each.results)
    assert comparisons(read_table(path)) == found


def test_a_head_says_how_long_it_was_trained(tmp_path: Path) -> None:
    pair = sv.load_pair()
    seconds = {}
    for kind in ("eagle3", "medusa"):
        work = SharedWork(pair, [[5, 6, 7]], reference_of(pair, [[5, 6, 7]], 2))
        grid = Grid(("inplace",), (1,), (2,), (2,), drafters=(kind,))
        (cell,) = grid.cells("embedded")
        seconds[kind] = measure(work, cell)["training_s"]
        folder = Path(sv.__file__).parent / "zoo" / "weights" / "heads" / kind
        assert seconds[kind] == json.loads((folder / "config.json").read_text())["training_s"]
    assert seconds["eagle3"] != seconds["medusa"]


def test_the_shipped_tables_can_be_checked() -> None:
    """One was measured before memory and requests were recorded, and says so."""
    data = Path(__file__).parents[1] / "figures" / "data"
    found = comparisons(read_table(data / "bench.csv"))
    assert found
    for each in found:
        assert "memory" in [one.line for one in each.of(UNKNOWN)]
    found = comparisons(read_table(data / "heads.csv"))
    assert found
    # Compiled methods have no memory, draft models no seconds of training, and hf_assisted neither.
    known = set(LINES) - {"memory", "training", "verified tokens", "best settings"}
    for each in found:
        assert known.isdisjoint(one.line for one in each.of(UNKNOWN))
    for _, part in sections(read_table(data / "bench.csv")):
        assert "[h] not at equal best settings" in readable(part)


def test_a_table_with_all_columns_leaves_nothing_unknown() -> None:
    data = Path(__file__).parents[1] / "figures" / "data"
    found = comparisons(read_table(data / "selection-speed.csv"))
    assert found
    assert not [one for each in found for one in each.of(UNKNOWN)]
