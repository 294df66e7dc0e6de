"""Rules that look right and are not, with their distance from the target's text."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specviz.cli.main import main
from specviz.studies.biases import RULES, measure_biases

DATA = Path(__file__).parents[1] / "figures" / "data" / "biases.csv"
WRONG = ["by the first q", "by q", "score=chosen, as published"]


def test_the_committed_table_says_which_rules_are_wrong_and_by_how_much() -> None:
    """The values of docs/results.md."""
    found = pd.read_csv(DATA).set_index("rule")
    assert len(found) == len(RULES)
    assert found.index[~found["lossless"]].tolist() == WRONG
    assert found.loc[found["lossless"], "total_variation_max"].max() < 1e-12
    wrong = found.loc[WRONG]
    assert wrong["total_variation_median"].round(3).tolist() == [0.035, 0.436, 0.054]
    assert wrong["total_variation_max"].round(3).tolist() == [0.253, 0.683, 0.108]


@pytest.mark.slow
def test_the_command_computes_the_distances(tmp_path: Path) -> None:
    path = tmp_path / "biases.csv"
    assert main(["study", "biases", "--cases", "1", "--out", str(path)]) == 0
    found = pd.read_csv(path)
    wrong = found[~found["lossless"]]
    assert wrong["rule"].tolist() == WRONG
    of_seed_0 = [RULES["children drawn without replacement", WRONG[0]](seed=0)]
    assert wrong["total_variation_max"].tolist()[:1] == pytest.approx(of_seed_0, rel=1e-4)
    assert (wrong["total_variation_median"] == wrong["total_variation_max"]).all()
    assert json.loads(path.with_suffix(".json").read_text())["cases"] == 1


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        ({"cases": 0}, "cases must be an int >= 1, got 0"),
        ({"cases": "20"}, "cases must be an int >= 1, got '20'"),
        ({"cases": 10**9}, "cases must be at most 10000, got 1000000000"),
        ({"progress": "no"}, "progress must be a bool, got 'no'"),
    ],
)
def test_what_cannot_be_computed_is_refused(arguments: dict[str, Any], begins: str) -> None:
    with pytest.raises(ValueError, match=f"^{begins}"):
        measure_biases(**arguments)
