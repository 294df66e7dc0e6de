"""`specviz study laws`: rungs that share a trunk, resumed where it was killed, and what is counted.

Studies run at toy size, on a tiny random target.
"""

import itertools
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import make_pair, make_prompts
from safetensors.torch import load_file
from test_train_heads import make_source, tiny_target
from torch import nn

import specviz as sv
from specviz.cli.main import main
from specviz.studies.tables import make_table
from specviz.zoo import distil
from specviz.zoo.corpus import SourceFile
from specviz.zoo.data import train_tokenizer
from specviz.zoo.heads import pipeline
from specviz.zoo.ladder import charts, data, rungs, study, training
from specviz.zoo.ladder.measure import count_accepted, count_all_rounds
from specviz.zoo.ladder.muon import Float32Muon, float32_optimisers, orthogonalise
from specviz.zoo.ladder.rungs import Rung, Size, checked_marks, sizes_of
from specviz.zoo.models import build_model

STEP = 32  # tokens of a step
MARKS = [64, 160]
SIZES = ["1x64", "2x64"]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return `study_laws` for a toy corpus and a toy target, with two windows of 16 a step."""
    texts = {f"m{i}.py": make_source(i) for i in range(3)}
    files = [SourceFile(name, text, held_out=False, is_test=False) for name, text in texts.items()]
    pair = sv.Pair(tiny_target(), tiny_target(1), train_tokenizer(texts.values(), vocabulary=400))
    monkeypatch.setattr(pipeline, "read_corpus", lambda: files)
    monkeypatch.setattr(data, "LENGTH", 16)
    for module in (data, rungs):
        monkeypatch.setattr(module, "STEP_TOKENS", STEP)
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(study, "load_pair", lambda **_: pair)
    monkeypatch.setattr(study, "load_prompts", lambda limit=None: ["def f(x):\n", "x = 1"][:limit])
    monkeypatch.setattr(study, "NEW_TOKENS", 8)
    monkeypatch.setattr(distil, "NEW_TOKENS", 8)
    given = {"sizes": SIZES, "marks": MARKS, "continuations": 8, "samples": 10, "progress": False}
    return partial(study.study_laws, **given)


def without_times(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns="cpu_s", errors="ignore")


@pytest.mark.slow
def test_the_ladder_has_every_size_at_every_mark(toy: Callable[..., Any], tmp_path: Path) -> None:
    tables, conditions = toy(tmp_path)
    drafts = tables["drafts"]
    assert drafts[["size", "mark"]].to_numpy().tolist() == [
        ["1x64", 64], ["2x64", 64], ["1x64", 160], ["2x64", 160],
    ]  # fmt: skip
    # Two steps and one of cooldown, five and one.
    assert drafts["steps"].tolist() == [3, 3, 6, 6]
    assert (drafts["tokens"] == STEP * drafts["steps"]).all()
    assert (drafts["parameters"] > drafts["layer_parameters"]).all()
    assert (drafts["length_k4"] <= drafts["length_k16"]).all()
    assert drafts["length_k16"].between(1, 9).all()
    assert len(tables["prompts"]) == 4 * 2
    assert len(tables["lengths"]) == 5 * 16
    fits = tables["fits"]
    assert set(fits["over"]) == {"tokens", "parameters", "layer_parameters"}
    assert (fits["points"] == 2).all()
    assert conditions["command"] == (
        "specviz study laws --sizes 1x64 2x64 --marks 64 160 --continuations 8"
    )
    shipped = tables["lengths"][tables["lengths"]["size"] == "shipped"]
    assert conditions["shipped"]["length_k4"] == pytest.approx(shipped["length"].iloc[3], abs=1e-4)


@pytest.mark.slow
def test_branches_leave_one_trunk(toy: Callable[..., Any], tmp_path: Path) -> None:
    """A trunk is what it would be without branches, and a branch changes it."""
    toy(tmp_path / "both", sizes=["1x64"])
    toy(tmp_path / "one", sizes=["1x64"], marks=MARKS[1:])
    name = f"checkpoints/1x64-{MARKS[1]}"
    for ending in (".safetensors", "-cooled.safetensors"):
        both = load_file(tmp_path / "both" / f"{name}{ending}")
        one = load_file(tmp_path / "one" / f"{name}{ending}")
        assert both.keys() == one.keys()
        assert all(torch.equal(both[key], one[key]) for key in both)
    trunk = load_file(tmp_path / "both" / f"{name}.safetensors")
    branch = load_file(tmp_path / "both" / f"{name}-cooled.safetensors")
    assert not torch.equal(
        trunk["model.model.embed_tokens.weight"], branch["model.model.embed_tokens.weight"]
    )


def check_reading(toy: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes read the same windows in the same order, and have the target's vocabulary."""
    loss = training.distillation_from
    read: dict[int, list[bytes]] = {}  # by layers
    vocabularies = set()

    def noted(draft: Any, target: Any, batch: Any) -> Any:
        read.setdefault(draft.config.num_hidden_layers, []).append(batch[0].numpy().tobytes())
        vocabularies.add((draft.config.vocab_size, target.config.vocab_size))
        return loss(draft, target, batch)

    with monkeypatch.context() as patch:
        patch.setattr(training, "distillation_from", noted)
        toy(folder)
    assert read.pop(2) == read.pop(1), "windows of the sizes"
    assert len({size for pair in vocabularies for size in pair}) == 1


def check_held_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that prompts may be cut from changes no window."""
    for part in ("before", "after"):
        (folder / part).mkdir(parents=True)
    before = data.draft_windows(study.load_pair(), 8, folder / "before", progress=False)
    files = pipeline.read_corpus()
    held_out = SourceFile("held.py", make_source(9) * 3, held_out=True, is_test=False)
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "read_corpus", lambda: [*files, held_out])
        after = data.draft_windows(study.load_pair(), 8, folder / "after", progress=False)
    assert np.array_equal(before, after), "windows of files that are held out"


@pytest.mark.slow
def test_all_sizes_read_the_same_and_nothing_that_is_held_out(
    toy: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_reading(toy, tmp_path / "plain", monkeypatch)
    check_held_out(tmp_path / "held", monkeypatch)


@pytest.mark.slow
def test_a_ladder_that_was_killed_goes_on_in_the_middle_of_a_draft(
    toy: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = partial(toy, sizes=["1x64"])
    whole, _ = toy(tmp_path / "whole")
    loss = training.distillation_from
    for killed_at in (2, 5):  # in a branch, and in a trunk
        calls = itertools.count()

        def interrupted(*given: Any) -> Any:
            if next(calls) == killed_at:  # noqa: B023
                raise KeyboardInterrupt
            return loss(*given)

        folder = tmp_path / str(killed_at)
        monkeypatch.setattr(training, "distillation_from", interrupted)
        with pytest.raises(KeyboardInterrupt):
            toy(folder)
        done = {path: path.read_bytes() for path in (folder / "rungs").iterdir()}
        tables, _ = toy(folder)
        assert next(calls) < 9  # there are seven steps
        for name in ("drafts", "prompts", "lengths", "fits", "batch"):
            pd.testing.assert_frame_equal(without_times(tables[name]), without_times(whole[name]))
        assert {path: path.read_bytes() for path in done} == done
    monkeypatch.setattr(training, "distillation_from", None)
    toy(folder)  # trains nothing


@pytest.mark.slow
def test_counts_of_another_study_are_refused(toy: Callable[..., Any], tmp_path: Path) -> None:
    toy(tmp_path, sizes=["1x64"], marks=[64])
    with pytest.raises(ValueError, match=r"1x64-64\.json.* is of another study; remove it, or"):
        toy(tmp_path, sizes=["1x64"], marks=[64], limit=1)
    # A mark that was not asked for before is added, and what is there stays in the tables.
    for marks in (MARKS, MARKS[:1]):
        tables, _ = toy(tmp_path, sizes=["1x64"], marks=marks)
        assert tables["drafts"]["mark"].tolist() == MARKS


# counting


def test_counts_are_the_drafts_that_a_table_accepts() -> None:
    pair = make_pair("llama")
    prompts = make_prompts()[:4]
    table = make_table(pair, prompts, 6, max_new_tokens=12, progress=False)
    result = sv.generate(
        pair, prompts, strategy="autoregressive", max_new_tokens=12, progress=False
    )
    found = []
    for prompt, output in zip(result.prompts, result.tokens, strict=True):
        found.append(count_accepted(pair.draft, prompt, output))
    assert np.minimum(np.concatenate(found), 6).tolist() == table.accepted.tolist()
    for k in (1, 3):
        run = sv.generate(
            pair, prompts, num_draft_tokens=k, max_new_tokens=12, record=True, progress=False
        )
        rounds = np.bincount(run.trace.rows["request"], minlength=4)
        assert rounds.tolist() == count_all_rounds(found, k).tolist()


@pytest.mark.slow
def test_acceptance_does_not_depend_on_the_batch() -> None:
    """Greedy, each request accepts exactly the same drafts round by round at B = 1 and 16."""
    pair = make_pair("llama")
    prompts = (make_prompts() * 4)[:16]

    def accepted(batch_size: int) -> list[list[int]]:
        run = sv.generate(
            pair,
            prompts,
            batch_size=batch_size,
            num_draft_tokens=3,
            max_new_tokens=12,
            progress=False,
        )
        by_request: list[list[int]] = [[] for _ in prompts]
        for request, count in zip(run.rows["request"], run.rows["accepted"], strict=True):
            by_request[request].append(int(count))
        return by_request

    alone = accepted(1)
    assert len({count for counts in alone for count in counts}) > 1
    assert accepted(16) == alone


# optimiser and rates


def test_muon_in_float32_is_torchs_but_for_its_rounding() -> None:
    torch.manual_seed(0)
    shapes = ((24, 8), (8, 24), (16, 16))
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [nn.Parameter(each.detach().clone()) for each in ours]
    before = [each.detach().clone() for each in ours]
    optimisers = (Float32Muon(ours, lr=0.02), torch.optim.Muon(theirs, lr=0.02))
    for _ in range(3):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        for optimiser in optimisers:
            optimiser.step()
    for mine, other, start in zip(ours, theirs, before, strict=True):
        moved = (other - start).norm()
        assert (mine - other).norm() < 0.02 * moved  # bfloat16 has eight bits
    singular = torch.linalg.svdvals(
        orthogonalise(torch.randn(12, 40), (3.4445, -4.7750, 2.0315), 5, 1e-7)
    )
    assert singular.min() > 0.4
    assert singular.max() < 1.4
    model = build_model(layers=1, hidden_size=64, heads=1, kv_heads=1, mlp=176)
    muon, _ = float32_optimisers(model, (0.5, 0.25))
    assert isinstance(muon, Float32Muon)
    assert all(each.ndim == 2 for each in muon.param_groups[0]["params"])


def test_rates_rise_stay_and_fall_in_a_branch() -> None:
    assert [training.constant(step, 40, 10) for step in (0, 4, 9, 39)] == [0.1, 0.5, 1, 1]
    branch = [training.falling(40, step, 44, 10) for step in range(40, 44)]
    assert branch == pytest.approx([0.8, 0.6, 0.4, 0.2])


# arguments


def test_a_rung_says_how_far_it_is_trained() -> None:
    rung = Rung(Size(2, 128), 16_384)
    assert (rung.name, rung.mark_steps, rung.steps, rung.tokens) == ("2x128-16384", 16, 19, 19_456)
    assert [size.form()["kv_heads"] for size in sizes_of(["1x64", "1x128", "1x192"])] == [1, 1, 3]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([], "sizes is empty"),
        (["2x100"], "sizes[0] must be LAYERSxWIDTH with a width that is a multiple of 64"),
        (["2"], "sizes[0] must be LAYERSxWIDTH"),
        (["0x64"], "sizes[0] must be LAYERSxWIDTH"),
        (["1x64", "9999x64"], "sizes[1] must be LAYERSxWIDTH"),
        (["1x64", "1x64"], "sizes must be different"),
    ],
)
def test_wrong_sizes_are_refused(sizes: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        sizes_of(sizes)


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ([], "marks must be a list of ints"),
        ([1000], "marks[0] must be a multiple of 1024, the tokens of a step, got 1000; pass 1024"),
        ([2048, 1024], "marks must rise, got [2048, 1024]; pass [1024, 2048]"),
        ([0], "marks[0] must be an int >= 1, got 0"),
    ],
)
def test_wrong_marks_are_refused(marks: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        checked_marks(marks)


@pytest.mark.slow
def test_the_command_writes_tables_and_charts(
    toy: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(charts, "to_png", lambda *_: b"png")
    heads = tmp_path / "heads.csv"
    heads.write_text("head,share,tokens,length\neagle3,1,64,1.5\n")
    given = "--sizes 1x64 2x64 --marks 64 --continuations 8 --samples 10"
    out = tmp_path / "x"
    assert main([*f"study laws --out {out} --heads {heads} {given}".split()]) == 0
    said = capsys.readouterr().out
    tables = {f"laws-{name}" for name in ("drafts", "lengths", "prompts", "fits", "batch")}
    pictures = {f"laws-{name}.png" for name in ("tokens", "size", "batch", "heads")}
    written = {path.name for path in out.iterdir() if path.is_file()}
    assert written == {f"{name}.{end}" for name in tables for end in ("csv", "json")} | pictures
    assert all(name in said for name in written)
    assert json.loads((out / "laws-fits.json").read_text())["prompts"] == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--sizes 2x3", "--sizes must be LAYERSxWIDTH"),
        ("--marks 7", "--marks must be a multiple of 1024"),
        ("--samples 0", "samples must be an int >= 1"),
        ("--heads missing.csv", "--heads 'missing.csv' is not a file; pass heads-training.csv"),
    ],
)
def test_a_wrong_order_for_the_study_is_refused_in_one_sentence(
    given: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(f"study laws --out {tmp_path / 'x'} {given}".split()) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
