"""What the couplings reach, measured: the table says what single runs say."""

import json
from pathlib import Path

import pandas as pd
import pytest

import specviz as sv
from specviz.cli import couplings
from specviz.cli.main import main
from specviz.studies.couplings import measure_couplings


@pytest.mark.slow
def test_the_table_is_that_of_single_runs(pair: sv.Pair, prompts: list[list[int]]) -> None:
    asked = {"batch_size": 4, "num_draft_tokens": 3, "max_new_tokens": 8, "progress": False}
    table, conditions = measure_couplings(pair, prompts, (0.5,), (0, 7), **asked)
    assert table["temperature"].tolist() == [0.5, 0.5, 0.5]
    assert table["coupling"].tolist() == ["rejection", "gumbel", "typical"]
    for entry in table.itertuples():
        sampling = sv.SamplingParams(0.5, coupling=entry.coupling)
        runs = []
        for seed in (0, 7):
            runs.append(sv.generate(pair, prompts, sampling=sampling, seed=seed, **asked).summary)
        runs = pd.concat(runs)
        lengths = runs["mean_acceptance_length"]
        assert entry.mean_acceptance_length_low == lengths.min()
        assert entry.mean_acceptance_length_high == lengths.max()
        assert entry.mean_acceptance_length == pytest.approx(lengths.mean())
        assert entry.draft_acceptance_rate == pytest.approx(runs["draft_acceptance_rate"].mean())
    assert table["total_variation"].tolist()[:2] == [0, 0]
    assert 0 < table["total_variation"].tolist()[2] < 1
    said = {"prompts": 10, "seeds": [0, 7], "batch_size": 4, "num_draft_tokens": 3}
    assert conditions | said | {"max_new_tokens": 8} == conditions


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        ({"temperatures": ()}, "temperatures is empty; "),
        ({"temperatures": (1.0, 0)}, "temperature must be a number from 1e-05 to 100000.0, got 0"),
        ({"seeds": []}, "seeds is empty; "),
        ({"seeds": (0, -1)}, r"seeds\[1\] must be an int >= 0, got -1; "),
        ({"batch_size": 0}, "batch_size must be an int >= 1, got 0; "),
    ],
    ids=str,
)
def test_what_cannot_be_measured(arguments: dict[str, object], begins: str, pair: sv.Pair) -> None:
    with pytest.raises(ValueError, match=f"^{begins}"):
        measure_couplings(pair, [[1]], **arguments)


@pytest.mark.slow
def test_the_command_prints_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(couplings, "load_prompts", lambda: sv.load_prompts(limit=3))
    path = tmp_path / "new" / "couplings.csv"
    options = "--temperatures 1.0 0.7 --seeds 3 --max-new-tokens 3 --device cpu"
    assert main(f"study couplings {options} --out {path}".split()) == 0
    printed = capsys.readouterr().out
    table = pd.read_csv(path)
    assert table["coupling"].tolist() == ["rejection", "gumbel", "typical"] * 2
    assert table["temperature"].tolist() == [1, 1, 1, 0.7, 0.7, 0.7]
    assert (table["mean_acceptance_length"] >= 1).all()
    assert [line.split()[1] for line in printed.splitlines()[1:7]] == table["coupling"].tolist()
    assert f"written to {path} and {path.with_suffix('.json')}" in printed
    assert json.loads(path.with_suffix(".json").read_text())["seeds"] == [3]
