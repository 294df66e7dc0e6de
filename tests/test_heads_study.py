"""`specviz study heads`: trainings of equal cost, resumed where it was killed, and their tables.

Studies run at toy size, on a tiny random target. What a step costs is given, but where it is
measured.
"""

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from test_train_heads import make_source, tiny_target
from transformers import LlamaForCausalLM

import specviz as sv
from specviz.cli import heads as command
from specviz.cli.main import main
from specviz.engine.heads import build_head
from specviz.engine.heads.base import HeadOutput
from specviz.zoo import distil
from specviz.zoo.corpus import SourceFile
from specviz.zoo.data import train_tokenizer
from specviz.zoo.heads import contenders, pipeline, step_cost, study, study_charts
from specviz.zoo.heads.contenders import PARTS, Contender, contenders_of
from specviz.zoo.heads.features import keep_features
from specviz.zoo.heads.measure import count_hits, texts_from
from specviz.zoo.heads.study_gains import PAIRS, gain_table
from specviz.zoo.heads.study_tables import share, step_table
from specviz.zoo.heads.training import HeadPlan, chain_steps, kept_layers
from specviz.zoo.train import learning_rate_factor

STEP_S = 0.01  # what a step is said to cost
BUDGET = 0.04


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return tiny_target()


@pytest.fixture
def toy(target: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return `study_heads` for a toy corpus and a toy target, whose steps all cost the same."""
    texts = {f"m{i}.py": make_source(i) for i in range(6)}
    files = [SourceFile(name, text, held_out=False, is_test=False) for name, text in texts.items()]
    pair = sv.Pair(target, tiny_target(1), train_tokenizer(texts.values(), vocabulary=400))
    monkeypatch.setattr(pipeline, "read_corpus", lambda: files)
    monkeypatch.setattr(pipeline, "LENGTH", 32)
    monkeypatch.setattr(study, "load_pair", lambda **_: pair)
    prompts = ["def f(x):\n", "x = 1", "    return"]
    monkeypatch.setattr(study, "load_prompts", lambda limit=None: prompts[:limit])
    monkeypatch.setattr(study, "measure_steps", lambda found, *_, **__: [STEP_S] * len(found))
    monkeypatch.setattr("specviz.zoo.heads.measure.NEW_TOKENS", 8)
    monkeypatch.setattr(distil, "NEW_TOKENS", 8)
    return partial(study.study_heads, budget=BUDGET, continuations=8, samples=20, progress=False)


def without_times(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns="cpu_s")


@pytest.mark.slow
def test_every_head_trains_for_its_share_of_the_budget(
    toy: Callable[..., Any], tmp_path: Path
) -> None:
    tables, conditions = toy(tmp_path)
    trainings, steps = tables["training"], tables["steps"]
    assert set(trainings["steps"]) == {1, 2, 4}
    assert (trainings["steps"] == 4 * trainings["share"]).all()
    assert (trainings["tokens"] == 128 * trainings["steps"]).all()  # four windows of 32
    assert len(trainings) == len(contenders_of(PARTS)) == 7 + 2 * 2 + 3 + 1
    assert trainings["length"].between(1, 5).all()
    assert (trainings["length_low"] <= trainings["length"]).all()
    of_clover = steps[(steps["head"] == "clover") & (steps["share"] == 1)]
    assert of_clover["step"].tolist() == [1, 2, 3, 4, 5]  # as many as it has heads
    of_eagle = steps[(steps["head"] == "eagle3") & (steps["share"] == 1)]
    assert of_eagle["step"].tolist() == list(range(1, study.STEPS + 1))
    assert (steps["top1"] <= steps["top5"]).all()
    assert conditions["budget_s"] == BUDGET
    assert conditions["prompts"] == 3
    parts = "blocks unrolling tokens gates"
    command = f"specviz study heads --budget 0.04 --parts {parts} --continuations 8"
    assert conditions["command"] == command
    # The first draft has none before it.
    first = steps[steps["step"] == 1]
    assert (first["conditional"] == first["top1"]).all()


@pytest.mark.slow
def test_a_study_that_was_killed_goes_on_with_the_next_training(
    toy: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ["blocks", "gates"]
    whole, _ = toy(tmp_path / "whole", parts=parts)
    train = study.train_from
    calls = itertools.count()

    def interrupted(*given: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return train(*given)

    monkeypatch.setattr(study, "train_from", interrupted)
    killed = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        toy(killed, parts=parts)
    done = sorted(path.name for path in (killed / "trainings").iterdir())
    assert done == ["clover-block.json", "clover.json"]
    before = [(killed / "trainings" / name).read_bytes() for name in done]
    tables, _ = toy(killed, parts=parts)
    assert next(calls) == 6  # the one at hand and two more
    assert [(killed / "trainings" / name).read_bytes() for name in done] == before
    again = without_times(tables["training"])
    pd.testing.assert_frame_equal(again, without_times(whole["training"]))
    for name in ("steps", "gains"):
        pd.testing.assert_frame_equal(tables[name], whole[name])
    toy(killed, parts=["gates"])
    assert next(calls) == 7  # nothing was trained


@pytest.mark.slow
def test_what_lies_in_the_folder_must_be_of_the_same_study(
    toy: Callable[..., Any], tmp_path: Path
) -> None:
    toy(tmp_path, parts=["gates"])
    with pytest.raises(ValueError, match=r"^budget must be 0\.04 in .*, got 1; pass that, or"):
        toy(tmp_path, parts=["gates"], budget=1.0)
    said = re.escape("clover.json") + r".* is of another training; remove it"
    with pytest.raises(ValueError, match=said):
        toy(tmp_path, parts=["gates"], limit=2)
    # A part that was not asked for before is added.
    toy(tmp_path, parts=["blocks"])
    planned = json.loads((tmp_path / "steps.json").read_text(encoding="utf-8"))
    assert set(planned["contenders"]) == {
        "clover", "clover-silu", "clover-block", "clover-gate", "clover-neither",
    }  # fmt: skip


def test_steps_are_measured_in_turn(
    target: LlamaForCausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of the k-th head is said to take k seconds, and one in nine much longer."""
    windows = np.random.default_rng(0).integers(3, 40, (12, 24))
    features = keep_features(target, windows, kept_layers(target), tmp_path, progress=False)
    found = contenders_of(["gates", "unrolling"])
    order = []
    real = step_cost.Trial.step

    def step(trial: step_cost.Trial) -> float:
        taken = real(trial)
        assert taken >= 0
        kinds = [(each.kind, each.changes) for each in found]
        settings = trial.head.settings
        changes = {"gate": settings.gate} if settings.gate in ("silu", "none") else {}
        if settings.kind != "clover":
            changes = {}
        place = kinds.index((settings.kind, changes))
        if settings.kind == "eagle3":
            place += trial.plan.unroll == 1
        order.append(place)
        return 100.0 if len(order) in (24, 36) else float(place + 1)

    monkeypatch.setattr(step_cost.Trial, "step", step)
    seconds = step_cost.measure_steps(found, target, features, progress=False)
    assert seconds == [1, 2, 3, 4, 5, 6]
    assert order == list(range(6)) * (step_cost.WARM + step_cost.TURNS)
    assert all(each.requires_grad and each.grad is None for each in target.parameters())


def test_contenders_differ_in_what_is_compared_alone(target: LlamaForCausalLM) -> None:
    blocks = [
        build_head(each.kind, target, **each.changes).settings for each in contenders_of(["blocks"])
    ]
    assert {(each.block, each.gate) for each in blocks} == {
        (True, "cosine"), (True, "none"), (False, "cosine"), (False, "none"),
    }  # fmt: skip
    assert len({replace(each, block=False, gate="none") for each in blocks}) == 1
    gates = [
        build_head(each.kind, target, **each.changes).settings.gate
        for each in contenders_of(["gates"])
    ]
    assert gates == ["cosine", "silu", "none"]
    unrolled = {}
    for each in contenders_of(["unrolling"]):
        head = build_head(each.kind, target)
        unrolled[each.name] = chain_steps(head, each.plan(10))
    assert unrolled == {"eagle3": 5, "eagle3-alone": 1, "eagle1": 5}
    labels = [each.label for each in contenders_of(PARTS)]
    assert len(set(labels)) == len(labels)
    assert command.PARTS == PARTS
    assert set(contenders._EACH) == set(PARTS)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], "parts is empty"),
        (["heads"], "parts[0]='heads' is unknown; choose one of blocks"),
        (["gates", "gates"], "parts must be different, got ['gates', 'gates']"),
    ],
)
def test_wrong_parts_are_refused(parts: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        contenders_of(parts)


def test_the_rates_of_a_short_training_rise_and_fall() -> None:
    for steps, warmup in ((1, 1), (50, 10), (400, 80), (3000, 100)):
        plan = Contender("medusa", "medusa").plan(steps)
        assert plan.warmup == warmup
        factors = [learning_rate_factor(step, steps, plan.warmup) for step in range(steps)]
        assert max(factors) >= 0.8
        assert factors.index(max(factors)) == max(warmup - 1, 0)
        assert factors[-1] == pytest.approx(1 / steps)
    assert HeadPlan().warmup == 100


def test_hits_are_those_of_a_plain_count(target: LlamaForCausalLM) -> None:
    """The head's first choice is always 0, and its second 1."""
    head = build_head("medusa", target)
    logits = -torch.arange(4096.0)

    def unroll(tokens: torch.Tensor, _: object, starts: torch.Tensor, steps: int) -> list[Any]:
        shape = (*starts.shape, 4096)
        return [HeadOutput(logits.expand(shape), logits[:0]) for _ in range(steps)]

    head.unroll = unroll
    texts = texts_from(target, [[1, 9], [5]], [[0, 0, 4, 0, 9], [0]], kept_layers(target))
    found = count_hits(head, texts, 3, 2)
    assert found.tokens.tolist() == [5, 1]
    assert found.positions.tolist() == [[5, 4, 3], [1, 0, 0]]
    assert found.top1.tolist() == [[3, 2, 1], [1, 0, 0]]
    assert found.top5.tolist() == [[4, 3, 2], [1, 0, 0]]
    # At 0 both are right and the third is not; at 1 the first; at 3 the first.
    assert found.accepted.tolist() == [[3, 1, 0], [1, 0, 0]]
    assert found.reached.tolist() == [[5, 3, 1], [1, 0, 0]]
    # 0 0 and 4 as bonus, then 0 and 9 as bonus; the other text is one round.
    assert found.rounds.tolist() == [2, 1]
    assert count_hits(head, texts, 3, 1).rounds.tolist() == [3, 1]


def test_figures_are_sums_over_prompts_with_their_intervals() -> None:
    counts = {"positions": [[10, 0], [30, 0]], "top1": [[5, 0], [3, 0]], "top5": [[9, 0], [9, 0]]}
    counts |= {"reached": [[10, 5], [30, 3]], "accepted": [[5, 1], [3, 3]]}
    columns = {"head": "x", "share": 1.0}
    hits = {**counts, "tokens": [1, 1], "rounds": [1, 1]}
    table = step_table([{"columns": columns, "hits": hits}], samples=200, seed=0)
    assert table["top1"].tolist()[0] == 8 / 40
    assert table["top5"].tolist()[0] == 18 / 40
    assert table["conditional"].tolist() == [8 / 40, 4 / 8]
    assert np.isnan(table["top1"][1])
    # Samples are the first prompt twice, both, or the second twice.
    assert table["top1_low"][0] == 3 / 30
    assert table["top1_high"][0] == 5 / 10
    alone = share("length", [10], [4], 10, 0)
    assert alone["length"] == 2.5
    assert np.isnan(alone["length_low"])


def test_gains_are_differences_at_the_same_prompts() -> None:
    """The heads differ by a point in each prompt, and prompts differ by much more."""

    def head(name: str, top1: list[list[int]], steps: int) -> dict[str, Any]:
        hits = {"positions": [[100] * steps] * 3, "reached": [[100] * steps] * 3}
        hits |= {"top1": top1, "top5": top1, "accepted": top1}
        return {"columns": {"head": name, "share": 1.0}, "hits": hits}

    ours = head("eagle3", [[11, 5], [51, 5], [91, 5]], 2)
    other = head("eagle1", [[10], [50], [90]], 1)
    half = head("eagle3-alone", [[0], [0], [0]], 1)
    half["columns"]["share"] = 0.5
    found = gain_table([ours, other, half, head("clover", [[1]] * 3, 1)], samples=50, seed=0)
    assert found[["head", "over", "step"]].to_numpy().tolist() == [["eagle3", "eagle1", 1]]
    for name in ("top1", "top5", "conditional"):
        values = found[[name, f"{name}_low", f"{name}_high"]].to_numpy()[0]
        assert values == pytest.approx([1, 1, 1])
    assert {part for pair in PAIRS for part in pair} <= {
        each.name for each in contenders_of(PARTS) if each.share == 1
    }


def test_charts_show_what_was_trained() -> None:
    trainings = pd.DataFrame(
        {
            "head": ["eagle3", "eagle3", "clover", "eagle3-alone"],
            "tokens": [2e6, 1e6, 1e6, 1e6],
            "length": [3.0, 2.0, 1.5, 1.2],
        }
    )
    chart = study_charts.length_chart(trainings)
    assert chart is not None
    (line,) = chart.data
    assert list(line.x) == [1, 2]
    assert list(line.y) == [2, 3]
    assert study_charts.length_chart(trainings[2:]) is None
    steps = pd.DataFrame(
        {
            "head": ["eagle3-alone"] * 2 + ["clover"],
            "share": 1.0,
            "step": [1, 2, 1],
            "top1": [0.9, 0.5, 0.3],
        }
    )
    chart = study_charts.step_chart(steps)
    assert chart is not None
    (line,) = chart.data
    assert (line.line.dash, list(line.y)) == ("dash", [0.9, 0.5])
    assert study_charts.step_chart(steps[2:]) is None
    chart = study_charts.block_chart(steps.assign(top5=0.25))
    assert chart is not None
    (line,) = chart.data
    assert (list(line.x), list(line.y)) == ([1], [0.25])
    assert study_charts.block_chart(steps[:2]) is None


def test_the_command_writes_tables_and_charts(
    toy: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(study_charts, "to_png", lambda *_: b"png")
    given = f"--out {tmp_path / 'x'} --budget {BUDGET} --continuations 8 --samples 5"
    assert main(f"study heads {given} --parts tokens".split()) == 0
    said = capsys.readouterr().out
    written = {path.name for path in (tmp_path / "x").iterdir() if path.is_file()}
    names = {"heads-training.csv", "heads-training.json", "heads-steps.csv", "heads-steps.json"}
    # No two heads of the tokens' part are compared step by step.
    pictures = {"heads-tokens.png", "heads-steps.png", "heads-blocks.png"}
    assert written == names | pictures | {"steps.json"}
    for name in written - {"steps.json"}:
        assert name in said
    table = pd.read_csv(tmp_path / "x" / "heads-training.csv")
    assert sorted(set(table["head"])) == ["clover", "eagle3", "medusa"]
    assert json.loads((tmp_path / "x" / "heads-steps.json").read_text())["budget_s"] == BUDGET


def test_a_wrong_order_for_the_study_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given, said in {
        "--budget 0": "budget must be a finite number > 0",
        "--parts gate": "parts 'gate' is unknown",
        "--samples 0": "samples must be an int >= 1",
    }.items():
        assert main(f"study heads --out {tmp_path / 'x'} {given}".split()) == 2
        assert capsys.readouterr().err.startswith(f"specviz study heads: --{said}")
        assert not (tmp_path / "x").exists()
