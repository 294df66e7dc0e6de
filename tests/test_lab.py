"""The form of `sv.lab()`: what it offers, what it runs, and how it reports errors.

Its look is tested in tests/browser.
"""

import pytest
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.engine.drafters import DRAFTERS
from specviz.engine.strategies import STRATEGIES


@pytest.fixture
def form():
    """Over the tiny pair and three of its prompts."""
    made = sv.lab(make_pair("llama"), make_prompts()[2:5])
    for name, value in {"num_draft_tokens": 3, "batch_size": 2, "max_new_tokens": 6}.items():
        made.fields[name].value = value
    return made


def test_it_offers_every_strategy_its_variants_and_faults(form):
    names = form.fields["strategy"].options
    assert {name.partition("(")[0] for name in names} == set(STRATEGIES)
    variants = {"masking(positions='column')", "exspec(fallback='wait')"}
    assert {*variants, "eqspec(break_invariant='kv', from_round=3)"} <= set(names)
    assert list(form.fields["compare"].options) == ["nothing", *names]
    assert form.fields["prompts"].value == form.fields["prompts"].max == 3
    assert list(form.fields["drafter"].options) == list(DRAFTERS)


def test_a_run_is_shown_and_counted(form):
    form.button.click()
    assert form.status.value == ""
    (result,) = form.results
    names = ("strategy", "num_draft_tokens", "batch_size", "sampling")
    assert [result.meta[name] for name in names] == ["eqspec", 3, 2, None]
    assert [len(tokens) <= 6 for tokens in result.tokens] == [True] * 3
    assert form.children[-1] is form.stepper
    assert (
        repr(form.stepper) == f"StepThrough(eqspec, {result.trace.num_rounds} rounds, 3 requests)"
    )
    assert f"{result.summary['mean_acceptance_length'].item():.2f}" in form.children[2].value
    assert not form.button.disabled


def test_two_runs_are_shown_side_by_side_and_replace_the_last(form):
    form.run()
    first = form.stepper
    form.fields["compare"].value = "masking(positions='column')"
    form.fields["prompts"].value = 2
    form.run()
    assert [result.meta["strategy"] for result in form.results] == ["eqspec", "masking"]
    assert form.stepper.other
    assert len(form.children) == 4
    assert all(
        name in form.children[2].value
        for name in ("<td>eqspec</td>", "masking(positions='column')", "accepted at 3")
    )
    assert first.comm is None  # closed


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_acceptance_belongs_to_the_synthetic_drafter(form, temperature):
    """Draft j is right with chance r if all before it are; only this drafter has an acceptance."""
    assert form.fields["acceptance"].disabled
    form.fields["drafter"].value = "synthetic"
    assert not form.fields["acceptance"].disabled
    form.fields["acceptance"].value, form.fields["temperature"].value = 0.5, temperature
    form.run()
    assert form.status.value == ""
    assert list(form.results[0].meta["drafter_options"]["rates"]) == [0.5, 0.25, 0.125]
    form.fields["drafter"].value = "lookup"
    assert form.fields["acceptance"].disabled


@pytest.mark.parametrize(("acceptance", "drafts"), [(0, 0), (1, 3)])
def test_acceptance_of_0_and_of_1(form, acceptance, drafts):
    form.fields["drafter"].value, form.fields["acceptance"].value = "synthetic", acceptance
    form.run()
    rows = form.results[0].trace.rows
    going_on = rows["finished"] == 0  # at a row's end more may have been cut off
    assert going_on.sum() > 3 or acceptance == 1
    assert set(rows["accepted"][going_on].tolist()) <= {drafts}


def test_a_temperature_samples(form):
    form.fields["temperature"].value = 0.7
    form.run()
    assert form.results[0].meta["sampling"] is not None


def test_an_error_is_one_line_without_markup(form, monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("out of <b>memory</b>\n  on cuda:0")

    monkeypatch.setattr("specviz.views.lab.generate", fails)
    form.run()
    assert form.status.value == "out of &lt;b&gt;memory&lt;/b&gt; on cuda:0"
    assert form.stepper is None
    assert not form.button.disabled


def test_the_button_is_disabled_during_a_run(form, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "specviz.views.lab.generate", lambda *_, **__: seen.append(form.button.disabled)
    )
    form.run()
    assert seen == [True]


@pytest.mark.parametrize("prompts", [[], "one text"])
def test_prompts_are_a_list(prompts):
    with pytest.raises(ValueError, match=r"^prompts must be a list of at least one prompt"):
        sv.lab(prompts=prompts)


def test_nothing_is_loaded_before_the_first_run():
    made = sv.lab()
    assert repr(made) == "Lab(32 prompts)"
    assert made.stepper is None
    assert made.fields["prompts"].max == 32
