"""The survey of all strategies: the paper's pattern, on the embedded pair."""

import json

import pandas as pd
import pytest

import specviz as sv
from specviz.cli import main
from specviz.survey import changed_options, everything, survey


@pytest.fixture(scope="module")
def found(embedded: sv.Pair):  # type: ignore[no-untyped-def]
    return survey(embedded, sv.load_prompts(limit=10), batch_size=4, max_new_tokens=24, progress=False)


def test_valid_strategies_are_exact_and_the_failing_ones_are_not(found) -> None:  # type: ignore[no-untyped-def]
    table = found.table
    valid = table[table["valid"]]
    assert len(valid) == 8
    assert (valid["exact_match"] == 1).all()
    assert (valid["unexplained"] == 0).all()
    assert (valid["first_violation"] == "").all()
    failing = table[~table["valid"]]
    assert set(failing["strategy"]) == {"masking", "repadding"}
    assert (failing["exact_match"] <= 0.2).all()
    assert (failing["first_violation"] != "").all()


def test_each_way_pays_in_its_own_coin(found) -> None:  # type: ignore[no-untyped-def]
    table = found.table.set_index(found.table["strategy"] + found.table["options"])
    assert table.loc["rollback", "discarded_tokens"] > 0
    assert (table.drop(index=["rollback", "repadding"])["discarded_tokens"] == 0).all()
    assert table.loc["masking", "hole_share"] > 0.1
    assert table.loc["eqspec", "realigned_mb"] > table.loc["rollback", "realigned_mb"]
    assert table.loc["inplace", ["realigned_mb", "hole_share", "padding_share"]].eq(0).all()
    assert table.loc["exspec", "grouping_rate"] <= 1
    assert table.loc["eqspec":"eqspec", "grouping_rate"].isna().all()
    assert table["tokens_per_s"].gt(0).all()


def test_the_command_prints_and_writes_it(embedded: sv.Pair, tmp_path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("specviz.survey.everything", lambda: [sv.strategy("eqspec"), sv.strategy("masking", positions="column")])
    path = tmp_path / "survey.csv"
    assert main(["survey", "--limit", "3", "--max-new-tokens", "8", "--batch-size", "2", "--device", "cpu", "--out", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "masking(positions='column')" in printed
    assert "autoregressive, alone" in printed
    assert pd.read_csv(path)["strategy"].tolist() == ["eqspec", "masking"]
    conditions = json.loads((tmp_path / "survey.json").read_text())
    assert (conditions["prompts"], conditions["batch_size"], conditions["num_draft_tokens"], conditions["device"]) == (3, 2, 5, "cpu")


def test_options_as_they_are_written() -> None:
    assert [changed_options(strategy) for strategy in everything() if strategy.name == "exspec"] == [
        "",
        "fallback='partial'",
        "fallback='wait'",
    ]


def test_no_strategy_is_no_survey(embedded: sv.Pair) -> None:
    with pytest.raises(ValueError, match=r"strategies=\[\] names none"):
        survey(embedded, ["x = 1"], [])
