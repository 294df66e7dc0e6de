"""The survey of all strategies: the paper's pattern, on the embedded pair."""

import json
from dataclasses import replace

import pandas as pd
import pytest

import specviz as sv
from specviz.cli.main import main
from specviz.engine.strategies import changed_options, everything
from specviz.studies.survey import Survey, marked, survey


@pytest.fixture(scope="module")
def found(embedded: sv.Pair) -> Survey:
    prompts = sv.load_prompts(limit=8)
    return survey(embedded, prompts, batch_size=4, max_new_tokens=24, progress=False)


@pytest.mark.slow
def test_valid_strategies_are_exact_and_the_failing_ones_are_not(found: Survey) -> None:
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


@pytest.mark.slow
def test_each_way_pays_in_its_own_coin(found: Survey) -> None:
    table = found.table.set_index(found.table["strategy"] + found.table["options"])
    assert table.loc["rollback", "discarded_tokens"] > 0
    assert (table.drop(index=["rollback", "repadding"])["discarded_tokens"] == 0).all()
    assert table.loc["masking", "hole_share"] > 0.1
    assert table.loc["eqspec", "realigned_mb"] > table.loc["rollback", "realigned_mb"]
    assert table.loc["inplace", ["realigned_mb", "hole_share", "padding_share"]].eq(0).all()
    assert table.loc["exspec", "grouping_rate"] <= 1
    assert table.loc["eqspec":"eqspec", "grouping_rate"].isna().all()
    assert table["tokens_per_s"].gt(0).all()


@pytest.mark.slow
def test_the_prompt_that_is_shown_tells_the_failing_from_the_valid(found: Survey) -> None:
    shown = found.texts(found.telling_prompt)
    expected = shown.pop("autoregressive, alone")
    assert len(shown) == 10
    for name, valid in zip(found.names, found.table["valid"], strict=True):
        assert ("‖" in shown[name]) != valid, name
        assert (shown[name] == expected) == valid, name


@pytest.mark.slow
def test_of_the_prompts_that_tell_the_soonest_is_shown(found: Survey) -> None:
    """Choose the prompt on runs with made-up tokens.

    All failing runs must leave the reference. Then a reference that ends by itself counts, then
    how soon the last run leaves it.
    """
    reference = [[1, 2], [1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2]]
    failing = ([[9], [9], [1, 9], [1, 2, 9], [1, 2, 9]], [[1, 2], [1, 9], [9], [9], [1, 9]])
    runs = []
    for tokens in (reference, *failing):
        runs.append(replace(found.reference, tokens=tokens, budgets=[3] * 5))
    table = pd.DataFrame({"valid": [False, False]})
    # 4 ends by itself; at 0 the second one never leaves.
    assert Survey(table, runs[1:], runs[0]).telling_prompt == 4
    full = [replace(run, budgets=[len(row) for row in reference]) for run in runs]
    assert Survey(table, full[1:], full[0]).telling_prompt == 1  # 1 and 2 both at token 1
    assert Survey(table, [full[0]] * 2, full[0]).telling_prompt == 0
    assert Survey(pd.DataFrame({"valid": [True]}), full[1:2], full[0]).telling_prompt == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("abc", "'abc'"),
        ("abd", "'ab‖d'"),
        ("x", "'‖x'"),
        ("ab", "'ab‖'"),
        ("", "'‖'"),
        ("abc\n", "'abc‖\\n'"),
        ("abcdefgh", "'abc‖d'…"),
    ],
)
def test_a_text_is_marked_where_it_departs(text: str, shown: str) -> None:
    assert marked(text, "abc", characters=5) == shown


@pytest.mark.slow
def test_the_command_prints_and_writes_it(embedded: sv.Pair, tmp_path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(
        "specviz.studies.survey.everything",
        lambda: [sv.strategy("eqspec"), sv.strategy("masking", positions="column")],
    )
    path = tmp_path / "survey.csv"
    options = "--limit 3 --max-new-tokens 8 --batch-size 2 --device cpu"
    assert main(f"study survey {options} --out {path}".split()) == 0
    printed = capsys.readouterr().out
    assert "masking(positions='column')" in printed
    before, after = printed.split("; ‖ is where a text leaves the one written alone\n\n")
    assert before.splitlines()[-1].startswith("The texts after prompt ")
    names = [line.split(": ")[0].strip() for line in after.splitlines()[:3]]
    assert names == ["autoregressive, alone", "eqspec", "masking(positions='column')"]
    assert pd.read_csv(path)["strategy"].tolist() == ["eqspec", "masking"]
    conditions = json.loads((tmp_path / "survey.json").read_text())
    asked = {"prompts": 3, "batch_size": 2, "num_draft_tokens": 5, "device": "cpu"}
    assert conditions | asked == conditions


def test_options_as_they_are_written() -> None:
    options = [changed_options(each) for each in everything() if each.name == "exspec"]
    assert options == ["", "fallback='partial'", "fallback='wait'"]


def test_no_strategy_is_no_survey(embedded: sv.Pair) -> None:
    with pytest.raises(ValueError, match=r"strategies must name at least one, got \[\]"):
        survey(embedded, ["x = 1"], [])
