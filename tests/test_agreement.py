"""The measurement of agreement: its table, how it resumes after an interruption, and SpecBench.

SpecBench's prompts are used if they are there.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.cli.main import main
from specviz.prompts import spread
from specviz.studies import agreement, resume
from specviz.studies.agreement import Setups, cut, measure_agreement
from specviz.util.files import save_measured

Ran = list[tuple[bool, int, str]]
SMALL: dict[str, Any] = {
    "strategies": ("autoregressive", "eqspec"),
    "batch_sizes": (1, 3),
    "num_draft_tokens": 2,
    "max_new_tokens": 6,
}
SMALL_SETUPS = [(1, "eqspec"), (3, "autoregressive"), (3, "eqspec")]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Ran]:
    """Return a function that starts a list of the runs over all prompts.

    An entry is (deterministic, B, strategy). The run after the first `fine` is interrupted.
    """
    original = sv.generate

    def watch(fine: int = 100) -> Ran:
        ran: Ran = []

        def run(pair: sv.Pair, prompts: Any, **options: Any) -> sv.Result:
            if len(prompts) > 1:  # the first run asks one prompt, to see what it runs on
                ran.append((options["deterministic"], options["batch_size"], options["strategy"]))
                if len(ran) > fine:
                    raise KeyboardInterrupt
            return original(pair, prompts, **options)

        monkeypatch.setattr(agreement, "generate", run)
        return ran

    return watch


def setups_of(table: pd.DataFrame) -> list[tuple[int, str]]:
    return list(table[["batch_size", "strategy"]].itertuples(index=False, name=None))


@pytest.mark.slow
def test_the_table_has_an_entry_for_each_setup(pair: sv.Pair, prompts: list[list[int]]) -> None:
    setups = Setups(deterministic=(True, False), **SMALL)
    table, conditions = measure_agreement(pair, prompts, setups, progress=False)
    assert table["deterministic"].tolist() == [False] * 3 + [True] * 3
    assert setups_of(table) == SMALL_SETUPS * 2
    assert (table[["exact_match", "partial_match"]] == 1).all(axis=None)
    assert (table[["divergences", "near_ties", "unexplained", "unknown"]] == 0).all(axis=None)
    assert table[["largest_gap", "noise"]].isna().all(axis=None)
    assert (table["tokens_per_s"] > 0).all()
    asked = {"source": "own", "prompts": 10, "prompt_tokens": sum(map(len, prompts))}
    asked |= {"num_draft_tokens": 2, "max_new_tokens": 6, "max_prompt_tokens": None}
    assert conditions | asked | {"dtype": "float32"} == conditions


@pytest.mark.slow
def test_a_wrong_text_is_no_near_tie(
    pair: sv.Pair, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **options: Any) -> sv.Result:
        if options["strategy"] == "eqspec":
            options["strategy"] = sv.strategy("eqspec", break_invariant="kv")
        return sv.generate(*args, **options)

    monkeypatch.setattr(agreement, "generate", broken)
    table, _ = measure_agreement(pair, prompts, Setups(**SMALL), progress=False)
    table = table.set_index(["batch_size", "strategy"])
    wrong = table.loc[3, "eqspec"]
    assert wrong["exact_match"] < 1
    assert wrong["unexplained"] > 0
    assert wrong["largest_gap"] > wrong["noise"]
    assert table.loc[(3, "autoregressive"), "exact_match"] == 1


@pytest.mark.slow
def test_an_interrupted_measurement_goes_on_and_may_be_extended(
    pair: sv.Pair, prompts: list[list[int]], tmp_path: Path, watched: Callable[..., Ran]
) -> None:
    path = tmp_path / "new folder" / "found.csv"
    setups = Setups(**SMALL)
    ran = watched(fine=3)  # the reference and two setups
    with pytest.raises(KeyboardInterrupt):
        measure_agreement(pair, prompts, setups, path, progress=False)
    assert ran[0] == (False, 1, "autoregressive")
    assert ran[1:3] == [(False, *setup) for setup in SMALL_SETUPS[:2]]
    before = pd.read_csv(path)
    assert setups_of(before) == SMALL_SETUPS[:2]

    ran = watched()
    table, conditions = measure_agreement(pair, prompts, setups, path, progress=False)
    assert ran == [(False, 1, "autoregressive"), (False, *SMALL_SETUPS[2])]
    after = pd.read_csv(path)
    pd.testing.assert_frame_equal(after.iloc[:2], before)  # their speeds, too
    assert setups_of(table) == setups_of(after) == SMALL_SETUPS
    assert json.loads(path.with_suffix(".json").read_text()) == conditions
    assert sorted(file.name for file in path.parent.iterdir()) == ["found.csv", "found.json"]

    ran.clear()
    fewer = Setups(**SMALL | {"batch_sizes": (3,)})
    said = r"found\.csv already holds all of these results, so nothing was measured; name another"
    with pytest.warns(UserWarning, match=said):
        table, _ = measure_agreement(pair, prompts, fewer, path, progress=False)
    assert ran == []
    assert setups_of(table) == SMALL_SETUPS
    pd.testing.assert_frame_equal(pd.read_csv(path), after)

    both = {"batch_sizes": (2,), "strategies": ("inplace",), "deterministic": (False, True)}
    table, _ = measure_agreement(pair, prompts, Setups(**SMALL | both), path, progress=False)
    asked = [(1, "autoregressive"), (2, "inplace")]
    assert ran == [(mode, *setup) for setup in asked for mode in (False, True)]
    merged = [SMALL_SETUPS[0], (2, "inplace"), *SMALL_SETUPS[1:], (2, "inplace")]
    assert setups_of(table) == setups_of(pd.read_csv(path)) == merged


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of SMALL on all prompts."""
    path = tmp_path_factory.mktemp("measured") / "found.csv"
    measure_agreement(make_pair("llama"), make_prompts(), Setups(**SMALL), path, progress=False)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["num_draft_tokens", "max_new_tokens", "max_prompt_tokens", "prompts", "source", "dtype"],
)
def test_results_of_other_conditions_are_kept_until_they_are_discarded(
    name: str, measured: Path, tmp_path: Path, watched: Callable[..., Ran]
) -> None:
    path = tmp_path / "found.csv"
    for ending in (".csv", ".json"):
        shutil.copy(measured.with_suffix(ending), path.with_suffix(ending))
    setups = Setups(**SMALL | ({name: 3} if hasattr(Setups, name) else {}))
    pair = make_pair("llama", torch.float64 if name == "dtype" else torch.float32)
    # As many prompts as before, and as many tokens in them.
    prompts = make_prompts()[::-1] if name == "prompts" else make_prompts()
    options = {"source": "mine" if name == "source" else "own", "progress": False}
    ran = watched(fine=2)
    with pytest.raises(ValueError, match=rf"found\.csv holds results .*{name}.*--fresh"):
        measure_agreement(pair, prompts, setups, path, **options)
    assert ran == []
    assert path.read_bytes() == measured.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        measure_agreement(pair, prompts, setups, path, fresh=True, **options)
    assert len(ran) == 3
    assert setups_of(pd.read_csv(path)) == SMALL_SETUPS[:1]


def test_results_of_other_conditions_are_not_taken_over(tmp_path: Path) -> None:
    """Without a run; the slow test has every condition."""
    path = tmp_path / "found.csv"
    entry = {"deterministic": False, "batch_size": 3, "strategy": "eqspec", "noise": 0.5}
    found = {"device": "cpu", "created": "Monday", "num_draft_tokens": 2}
    save_measured(pd.DataFrame([entry]), found, path)
    assert resume.kept_entries(path, found | {"created": "Tuesday"}) == [entry]
    for other in ({"num_draft_tokens": 3}, {"source": "own"}):
        with pytest.raises(ValueError, match=f"conditions .{next(iter(other))}.; name another"):
            resume.kept_entries(path, found | other)
        assert resume.kept_entries(path, found | other, fresh=True) == []
    path.with_suffix(".json").unlink()
    with pytest.raises(ValueError, match="other conditions"):
        resume.kept_entries(path, found)


def test_the_files_are_whole_and_short(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"share": [1 / 3, float("nan")], "count": [123456, 7], "speed": [1234.5678, 1e-7]}
    )
    paths = save_measured(table, {"device": "cpu"}, tmp_path / "a" / "b.csv")
    assert paths == [tmp_path / "a" / "b.csv", tmp_path / "a" / "b.json"]
    assert paths[0].read_text() == "share,count,speed\n0.33333,123456,1234.6\n,7,1e-07\n"
    assert json.loads(paths[1].read_text()) == {"device": "cpu"}
    assert len(list((tmp_path / "a").iterdir())) == 2


def test_prompts_are_cut_to_their_ends(embedded: sv.Pair, pair: sv.Pair) -> None:
    texts = ["import os\n\ndef read(path):\n    return open(path).read()", "x"]
    whole = [embedded.tokenizer(text)["input_ids"] for text in texts]
    assert cut(embedded, [*texts, whole[0]], 4) == [whole[0][-4:], whole[1], whole[0][-4:]]
    assert cut(pair, [[1, 2, 3], (4,)], 2) == [[2, 3], [4]]
    with pytest.raises(ValueError, match=r"^prompts are text, but the pair has no tokenizer; "):
        cut(pair, ["x"], 2)
    with pytest.raises(ValueError, match=r"^max_prompt_tokens must be an int >= 1, got 0; "):
        cut(pair, [[1]], 0)


def test_a_selection_is_spread_over_the_whole() -> None:
    assert spread("abcdefgh", 2) == ["a", "e"]
    assert spread("abcde", 3) == ["a", "b", "d"]
    assert spread(range(480), 24) == list(range(0, 480, 20))
    assert spread(range(480), 479)[-1] == 478
    assert spread("abc", 5) == spread("abc", None) == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"^limit must be an int >= 1, got 0; "):
        spread("abc", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategies": ()}, "strategies is empty; name at least one"),
        ({"batch_sizes": []}, "batch_sizes is empty; name at least one"),
        ({"deterministic": ()}, "deterministic is empty; name at least one"),
        ({"batch_sizes": (4, "8")}, r"batch_sizes\[1\] must be an int >= 1, got '8'; "),
        (
            {"deterministic": (False, 1)},
            r"deterministic\[1\] must be a bool, got 1; pass True or False",
        ),
        (
            {"strategies": ("eqspec", "eqspek")},
            "strategy='eqspek' is unknown; choose one of autoregressive, ",
        ),
        (
            {"strategies": ("repadding",)},
            "strategies names 'repadding', which does not promise the target's text; ",
        ),
        (
            {"strategies": ("autoregressive",), "batch_sizes": (1,)},
            "strategies must differ from the reference, autoregressive decoding at batch 1, ",
        ),
        ({"num_draft_tokens": 0}, "num_draft_tokens must be an int >= 1, got 0; "),
        ({"max_new_tokens": None}, "max_new_tokens must be an int >= 1, got None; "),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens must be an int >= 1, got 0; "),
    ],
    ids=str,
)
def test_setups_that_cannot_be_measured(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Setups(**arguments)


def test_prompts_that_cannot_be_decoded_end_it_before_anything_runs(
    pair: sv.Pair, watched: Callable[..., Ran]
) -> None:
    ran = watched()
    for prompts, message in (
        ([], "prompts="),
        ([[1], []], r"prompts\[1\]=\[\] is empty; "),
        ([[1], [1] * 250], r"prompts\[1\] has 250 "),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            measure_agreement(pair, prompts, Setups(**SMALL), progress=False)
    assert ran == []


@pytest.mark.slow
def test_the_command_measures_prints_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], watched: Callable[..., Ran]
) -> None:
    file = tmp_path / "question.jsonl"
    path = tmp_path / "agreement.csv"
    questions = []
    for i in range(6):
        text = f"def f{i}(x):\n    return " + "x + " * 40
        questions.append({"question_id": i, "category": "ab"[i // 3], "turns": [text]})
    file.write_text("\n".join(map(json.dumps, questions)))
    command = (
        f"study agreement --spec-bench {file} --limit 3 --max-prompt-tokens 9 --max-new-tokens 4 "
        "--num-draft-tokens 3 --strategies autoregressive inplace --device cpu --deterministic "
        f"--out {path} --batch-sizes"
    ).split()
    assert main([*command, "2"]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[:3] for line in printed.splitlines()[1:5]] == [
        ["False", "2", "autoregressive"],
        ["False", "2", "inplace"],
        ["True", "2", "autoregressive"],
        ["True", "2", "inplace"],
    ]
    assert f"written to {path} and {path.with_suffix('.json')}" in printed
    text = path.with_suffix(".json").read_text()
    asked = {"source": "spec_bench", "prompts": 3, "prompt_tokens": 27, "max_prompt_tokens": 9}
    asked |= {"num_draft_tokens": 3, "max_new_tokens": 4}
    assert json.loads(text) | asked == json.loads(text)
    assert "/" not in text  # no path of this machine
    ran = watched()
    assert main([*command, "2", "3"]) == 0
    assert {size for _, size, _ in ran} == {1, 3}
    assert len(pd.read_csv(path)) == 8


def test_the_command_names_its_file_after_the_dtype(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = "--limit 2 --max-new-tokens 2 --strategies inplace --batch-sizes 2 --device cpu"
    assert main(f"study agreement {options} --dtype bfloat16".split()) == 0
    names = ["agreement-bfloat16.csv", "agreement-bfloat16.json"]
    assert sorted(file.name for file in Path("runs").iterdir()) == names
    assert json.loads(Path("runs/agreement-bfloat16.json").read_text())["source"] == "bundled"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "batch_sizes"), [("float32", (1, 4, 8)), ("float64", (4, 8)), ("bfloat16", (8,))]
)
def test_spec_bench(dtype: str, batch_sizes: tuple[int, ...]) -> None:
    """Run every valid strategy on prompts spread over SpecBench.

    Any difference from decoding alone is a near tie; in 64 bits there is none.
    """
    if (path := os.environ.get("SPECVIZ_SPEC_BENCH")) is None:
        pytest.skip(
            "needs SpecBench's prompts: set SPECVIZ_SPEC_BENCH to the path of its question.jsonl"
        )
    prompts = spread(sv.load_prompts("spec_bench", path), 12)
    setups = Setups(batch_sizes=batch_sizes, max_new_tokens=16, max_prompt_tokens=128)
    table, _ = measure_agreement(
        sv.load_pair(device="cpu", dtype=dtype), prompts, setups, progress=False
    )
    assert len(table) == len(list(setups))
    assert (table["near_ties"] == table["divergences"]).all(), table.to_string()
    if dtype == "float64":
        assert (table["exact_match"] == 1).all(), table.to_string()
