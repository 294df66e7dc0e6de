"""The form of `sv.lab()`: what it offers, what it runs, and how it reports errors.

Its look is tested in tests/browser.
"""

import asyncio
import dataclasses
import os
import signal

import pytest
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.engine.drafters import DRAFTERS
from specviz.engine.faults import FAULTS
from specviz.engine.options import Options
from specviz.engine.strategies import STRATEGIES


@pytest.fixture
def form():
    """Over the tiny pair and three of its prompts."""
    made = sv.lab(make_pair("llama"), make_prompts()[2:5])
    chosen = {"strategy": "eqspec", "num_draft_tokens": 3, "batch_size": 2, "max_new_tokens": 6}
    for name, value in chosen.items():
        made.fields[name].value = value
    return made


def test_it_offers_every_strategy_its_variants_and_faults(form):
    names = form.fields["strategy"].options
    assert {name.partition("(")[0] for name in names} == set(STRATEGIES)
    variants = {"masking(positions='column')", "exspec(fallback='wait')"}
    assert variants <= set(names)
    assert list(form.fields["fault"].options) == ["nothing", *FAULTS]
    assert list(form.fields["compare"].options) == ["nothing", *names]
    assert form.fields["prompts"].value == form.fields["prompts"].max == 3
    assert list(form.fields["drafter"].options) == list(DRAFTERS)


def test_its_values_are_those_of_generate():
    """They are read from where `generate` defines them."""
    form = sv.lab(make_pair("llama"), make_prompts())
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    names = ("strategy", "drafter", "num_draft_tokens", "batch_size", "max_new_tokens", "seed")
    assert {name: form.fields[name].value for name in names} == {
        name: defaults[name] for name in names
    }


def test_what_changes_nothing_is_off(form):
    fields = form.fields
    fields["strategy"].value = "autoregressive"
    assert fields["num_draft_tokens"].disabled
    assert fields["drafter"].disabled
    assert "bonus" not in fields["fault"].options, "without drafts, none is rejected"
    assert "kv" in fields["fault"].options
    fields["compare"].value = "inplace"
    assert not fields["num_draft_tokens"].disabled, "the second run drafts"
    fields["strategy"].value = "eqspec"
    fields["fault"].value = "bonus"
    fields["strategy"].value = "masking"
    assert fields["fault"].value == "bonus"
    fields["strategy"].value = "autoregressive"
    assert fields["fault"].value == "nothing"
    fields["fault"].value = "kv"
    fields["strategy"].value = "repadding"
    assert fields["fault"].disabled, "it promises nothing that could be broken"
    assert fields["fault"].value == "nothing"
    fields["own_prompt"].value = "once"
    assert fields["prompts"].disabled


def test_a_fault_breaks_the_strategy_and_not_what_it_is_compared_with(form):
    form.fields["fault"].value = "kv"
    form.fields["compare"].value = "eqspec"
    form.fields["max_new_tokens"].value = 24
    form.run()
    assert form.status.value == ""
    broken, whole = form.results
    assert broken.meta["strategy_options"]["break_invariant"] == "kv"
    assert sv.check_invariants(broken.trace)
    assert not sv.check_invariants(whole.trace)


def test_an_own_prompt_and_a_seed():
    form = sv.lab(sv.load_pair(device="cpu"))
    form.fields["max_new_tokens"].value = 6
    form.fields["own_prompt"].value = "def area(radius):"
    form.fields["temperature"].value = 1.0
    texts = []
    for seed in (1, 1, 2):
        form.fields["seed"].value = seed
        form.run()
        assert form.status.value == ""
        texts.append(form.results[0].tokens)
    assert len(texts[0]) == 1
    assert texts[0] == texts[1] != texts[2]


def test_a_run_says_how_far_it_is_and_can_be_cancelled(form):
    form.fields["max_new_tokens"].value = 60
    form.run()
    shown = form.stepper
    steps = form._steps()
    said = []
    for _ in range(4):
        next(steps)
        said.append(form.status.value)
    assert said[0] == "running …"
    assert said[3].startswith("running eqspec: ")
    assert 0 < form.progress.value < form.progress.max == 3 * 60
    assert (form.button.disabled, form.cancel.disabled) == (True, False)
    form.cancel.click()
    assert list(steps) == []
    assert form.status.value == "cancelled"
    assert (form.button.disabled, form.cancel.disabled) == (False, True)
    assert form.stepper is shown, "the last run is still there"


def test_an_interrupt_is_said(form, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("specviz.views.lab.generate_stepwise", interrupted)
    with pytest.raises(KeyboardInterrupt):
        form.run()
    assert form.status.value == "interrupted"
    assert not form.button.disabled


def test_a_kernels_interrupt_ends_a_run_beside_cells(form, monkeypatch):
    """While no cell runs, ipykernel ignores interrupts."""
    form.fields["max_new_tokens"].value = 60
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    rounds = iter(range(1000))

    async def pause(_seconds: float) -> None:
        if next(rounds) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("specviz.views.lab.asyncio.sleep", pause)
    try:
        asyncio.run(form._run_beside())
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert form.status.value == "interrupted"
    assert next(rounds) == 4
    assert not form.button.disabled


def test_it_leaves_a_picture_of_its_run(form, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "live.ipynb")
    monkeypatch.setattr("specviz.views.lab.display", lambda *_, **given: given.get("display_id"))
    form._ipython_display_()
    form.run()
    assert form.stepper._places == [True], "what `display` returned"
    assert form.stepper._picture_wanted is not None


def test_headers_stand_over_their_columns(form):
    form.run()
    table = form.children[2].value
    assert 'class="dataframe specviz-lab"' in table
    assert ".specviz-lab :is(td, th) { padding: 3px 10px; text-align: right; }" in table


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


@pytest.mark.sweep(2)
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


@pytest.mark.sweep(2)
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

    monkeypatch.setattr("specviz.views.lab.generate_stepwise", fails)
    form.run()
    assert form.status.value == "out of <b>memory</b> on cuda:0", "a text, not markup"
    assert form.stepper is None
    assert not form.button.disabled


@pytest.mark.parametrize("prompts", [[], "one text"])
def test_prompts_are_a_list(prompts):
    with pytest.raises(ValueError, match=r"^prompts must be a list of at least one prompt"):
        sv.lab(prompts=prompts)


def test_nothing_is_loaded_before_the_first_run():
    made = sv.lab()
    assert repr(made) == "Lab(32 prompts)"
    assert made.stepper is None
    assert made.fields["prompts"].max == 32
