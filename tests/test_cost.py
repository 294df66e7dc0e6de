"""`specviz cost` and the tables behind it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import Qwen2Config, Qwen2ForCausalLM

import specviz as sv
from specviz.cli.main import main
from specviz.costs.breakeven import realigned_rows
from specviz.costs.ceilings import Ceilings
from specviz.costs.memory import memory, peak_bytes
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import named_pair
from specviz.generation.cost import Case, shapes_of

RATES = [0.8, 0.6, 0.5]
MEASURED = """quantity,dtype,rows,bytes,seconds,rate
copy,,,2000000000,1,4e12
read,,,1000000000,1,4e12
matmul,bfloat16,1,1,1,5e12
matmul,bfloat16,256,1,1,7e14
launch,,,,1,2.5e5
replay,,,,1,1e6
"""


@pytest.fixture
def ceilings(tmp_path: Path) -> Path:
    path = tmp_path / "ceilings-some-gpu.csv"
    path.write_text(MEASURED)
    return path


@pytest.fixture
def case(ceilings: Path) -> Case:
    shapes = named_pair("qwen3-8b/0.6b")
    line = Roofline(*shapes, Ceilings.load(ceilings), "bfloat16", captured=True)
    return Case(line, (1, 8), 3, 500, 100, sv.strategy("eqspec"), RATES)


def test_floors_are_those_of_the_roofline(case: Case) -> None:
    table = case.floors()
    assert case.slots == 500 + 50 + 3
    assert table["phase"].tolist() == ["draft", "verify", "accept", "synchronise"] * 2
    eight = table[table["batch_size"] == 8].set_index("phase")["floor_ms"] / 1e3
    line = case.roofline
    moved = float(realigned_rows(8, RATES)) * case.slots
    floors = [line.drafting(8, 3, 553), line.verifying(8, 3, 553), line.moving(moved)]
    found = eight[["draft", "verify", "synchronise"]].tolist()
    assert found == pytest.approx([floor.seconds for floor in floors])


@pytest.mark.parametrize(
    ("how", "rates", "moved"),
    [
        ("inplace", RATES, 0),
        ("rollback", RATES, 0),
        ("eqspec", None, 7),
        ("exspec", None, 7),
        ("eqspec", RATES, float(realigned_rows(8, RATES))),
    ],
)
def test_strategies_realign_what_they_have_to(
    case: Case, how: str, rates: Any, moved: float
) -> None:
    asked = Case(case.roofline, (8,), 3, how=sv.strategy(how), rates=rates)
    assert asked.moved(8, 3, 100) == pytest.approx(100 * moved)
    assert asked.moved(8, 0, 100) == 0


def test_what_pays_at_each_batch_size(case: Case) -> None:
    table = case.paying().set_index("batch_size")
    assert table["mean_acceptance_length"].tolist() == pytest.approx([2.9, 2.9])
    np.testing.assert_allclose(table["speedup"], 2.9 / table["break_even_length"])
    np.testing.assert_allclose(table["break_even_length"], table["round_ms"] / table["step_ms"])
    assert (table["best_speedup"] >= table["speedup"]).all()
    without = Case(case.roofline, (1, 8), 3).paying()
    columns = ["step_ms", "round_ms", "break_even_length", "break_even_rate"]
    assert list(without) == ["batch_size", *columns]


def test_memory_is_summed_up(case: Case) -> None:
    table = case.memory().set_index("batch_size")
    shapes = named_pair("qwen3-8b/0.6b")
    asked = {"num_draft_tokens": 3, "prompt_tokens": 500, "max_new_tokens": 100}
    for size in (1, 8):
        parts = memory(*shapes, sv.strategy("eqspec"), dtype="bfloat16", batch_size=size, **asked)
        assert table.loc[size, "peak_gb"] == pytest.approx(peak_bytes(parts) / 1e9)
    weights = sum(shape.weight_bytes("bfloat16") for shape in shapes)
    assert table.loc[8, "weights_gb"] == pytest.approx(weights / 1e9)
    np.testing.assert_allclose(table.drop(columns="peak_gb").sum(axis=1), table["peak_gb"])
    assert case.largest_batch(peak_bytes(parts) / 1e9) == 8
    assert case.largest_batch(1) == 0


def test_the_command_prints_all_of_it(ceilings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = (
        "cost --shapes qwen3-8b/0.6b --dtype bfloat16 --captured --strategy exspec:window=64 "
        "--memory-gb 80 --batch-sizes 2 4 --num-draft-tokens 2 --rates 0.7 0.5 "
        f"--ceilings {ceilings}"
    )
    assert main(command.split()) == 0
    printed = capsys.readouterr().out
    assert "The least time of each phase: exspec, K = 2, T = 578 slots" in printed
    assert "on ceilings-some-gpu in bfloat16" in printed
    columns = "floor_ms bound break_even_length break_even_rate best_num_draft_tokens kv_gb peak_gb"
    for column in columns.split():
        assert column in printed
    assert "The largest B in 80 GB: 64" in printed  # no more than the window


def test_a_pair_is_read_from_its_configurations_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folders without weights; where none are named the embedded pair, in any folder."""
    monkeypatch.chdir(tmp_path)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    sizes |= {"intermediate_size": 24, "vocab_size": 30}
    for role, layers in (("target", 2), ("draft", 1)):
        Qwen2Config(**sizes, num_hidden_layers=layers).save_pretrained(tmp_path / role)
    target, draft = shapes_of(tmp_path / "target", tmp_path / "draft")
    assert (target.layers, draft.layers) == (2, 1)
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_hidden_layers=2))
    assert target.parameters == sum(p.numel() for p in model.parameters())
    assert main(["cost", "--target", "target", "--draft", "draft", "--batch-sizes", "1"]) == 0
    small = capsys.readouterr().out
    assert main(["cost", "--batch-sizes", "1"]) == 0
    assert small != capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--shapes qwen", "shapes must be one of qwen3-8b/0.6b"),
        (
            "--shapes vicuna-7b/68m --target x",
            "--shapes vicuna-7b/68m and --target or --draft exclude each other",
        ),
        ("--strategy fast", "--strategy 'fast' is unknown"),
        ("--strategy exspec:window=2", "window=2 is smaller than batch_size=4"),
        ("--dtype float32", "dtype must be a measured one (bfloat16), got 'float32'"),
        (
            "--rates 0.5",
            "rates has 1 entries for --num-draft-tokens 5; pass one for each, or lower it",
        ),
        ("--rates 1 1 1 1 2", "rates must be numbers from 0 to 1"),
        ("--batch-sizes 0", "--batch-sizes must be an int >= 1, got 0"),
        ("--num-draft-tokens 0", "--num-draft-tokens must be an int >= 1, got 0"),
        ("--memory-gb -1", "--memory-gb must be a finite number > 0"),
        ("--ceilings none.csv", "ceilings must be a file, got 'none.csv'"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    options: str, message: str, ceilings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = f"--ceilings {ceilings} --dtype bfloat16 --shapes qwen3-8b/0.6b --batch-sizes 4"
    assert main(["cost", *given.split(), *options.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1


def test_one_model_alone_is_no_pair(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--target", "x"]) == 2
    said = "--target and --draft belong together; give both, or neither for the embedded pair"
    assert said in capsys.readouterr().err
