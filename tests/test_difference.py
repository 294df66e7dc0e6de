"""The line that says where two runs first differ, and why."""

from dataclasses import replace
from functools import cache

import pytest
from tiny_run import OUTPUTS, PROMPTS, TRACE

import specviz as sv
from specviz.record.schema import PHASES
from specviz.record.trace import Trace, flatten_requests
from specviz.views.stepper.difference import difference_words, first_parting, stand_apart
from specviz.views.stepper.packing import packed_film

SYNCHRONISE = PHASES.index("synchronise")


@cache
def inplace(**fault: object) -> Trace:
    options = dict(fault, rows=[2], from_round=3) if fault else {}
    strategy = sv.strategy("inplace", **options)
    given = {"batch_size": 4, "max_new_tokens": 24, "record": True, "progress": False}
    prompts = sv.load_prompts(limit=4)
    return sv.generate(sv.load_pair(device="cpu"), prompts, strategy=strategy, **given).trace


def words(*traces: Trace, judge: bool = True) -> str:
    return difference_words(traces, [packed_film(trace, judge)[1] for trace in traces])


def with_output(request: int, output: list[int]) -> Trace:
    """TRACE with another text."""
    outputs = [output if number == request else each for number, each in enumerate(OUTPUTS)]
    return replace(TRACE, requests=flatten_requests(PROMPTS, outputs, [7, 9, 9]))


@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ("kv", "K/V of row 2 is one slot off in A since round 3"),
        ("positions", "position ids of row 2 are 1 too high in A since round 3"),
        ("mask", "queries see the wrong slots (row 2 in A since round 3)"),
    ],
)
def test_cause_effect_and_tokens_of_a_planted_fault(rule, cause):
    broken, valid = inplace(break_invariant=rule), inplace()
    first = first_parting(broken, valid)
    said = words(broken, valid)
    place = f"First difference: request 2, new token {first.index}, round {first.round} of A: "
    assert said.startswith(f"{place}{cause} → p of “")
    tokens = [trace.output(2)[first.index] for trace in (broken, valid)]
    texts = [f"“{broken.text(token).replace(' ', '·')}”" for token in tokens]
    assert f" → A writes {texts[0]} instead of {texts[1]}. " in said


def test_probabilities_are_those_of_both_records():
    broken, valid = inplace(break_invariant="kv"), inplace()
    first = first_parting(broken, valid)
    token = valid.output(2)[first.index]
    length = len(valid.prompt(2)) + first.index
    for trace, word in ((broken, "is"), (valid, "instead of")):
        rows = trace.rows
        entry = (rows["request"] == 2) & (rows["length"] <= length)
        entry &= rows["length"] + rows["gained"] > length
        column = length - int(rows["length"][entry][0])
        leading = rows["target_top_ids"][entry][0, column].tolist()
        logprob = rows["target_top_logprobs"][entry][0, column][leading.index(token)]
        assert f"{word} {2.718281828 ** float(logprob):.2f}" in words(broken, valid)


def test_the_faulty_run_may_be_the_second_one():
    said = words(inplace(), inplace(break_invariant="kv"))
    assert "K/V of row 2 is one slot off in B since round 3 → " in said
    assert " → B writes “" in said


def test_a_wrong_token_needs_no_probability():
    said = words(inplace(break_invariant="bonus"), inplace())
    cause = "the token after the accepted drafts is not the target's (row 2 in A, round 3)"
    assert f": {cause} → A writes “" in said


def test_the_earlier_fault_of_two_runs_is_the_cause():
    late = {"round": 1, "phase": 2, "row": 0, "request": 0, "rule": "mask", "model": 0, "slot": 3}
    early = late | {"round": 0}
    other = with_output(0, [19, 15, 77, 17, 18, 40])
    assert "(row 0 in B since round 0)" in difference_words((TRACE, other), [[late], [early]])
    drafts = early | {"model": 1}
    said = difference_words((TRACE, other), [[late], [drafts]])
    assert "(row 0 in A since round 1)" in said, "drafts alone change no text"
    after = early | {"round": 2}
    foreign = early | {"request": 1}
    said = difference_words((TRACE, other), [[after], [foreign]])
    assert "no invariant is broken before it" in said


def test_nothing_is_judged_where_nobody_asked():
    said = words(inplace(break_invariant="kv"), inplace(), judge=False)
    assert "→" not in said
    assert "K/V" not in said
    assert ": A writes “" in said


def test_equal_texts_and_what_is_broken_all_the_same():
    assert difference_words((TRACE, TRACE), [[], []]) == "All 3 texts are the same."
    fault = {"round": 1, "rule": "kv"}
    said = difference_words((TRACE, TRACE), [[], [fault]])
    assert said == "All 3 texts are the same, although B breaks kv from round 1 on."


def test_one_text_may_simply_end():
    said = difference_words((TRACE, with_output(0, [*OUTPUTS[0], 50])), [[], []])
    assert said.startswith("First difference: request 0, new token 6, round 2 of A: ")
    assert "A ends, B writes “<50>”. 1 of 3 texts differs." in said


def test_drawn_tokens_have_no_cause():
    sampled = [
        replace(trace, meta=trace.meta | {"sampling": {"coupling": "rejection"}})
        for trace in (TRACE, with_output(0, [19, 15, 77, 17, 18, 40]))
    ]
    assert "equal texts are not promised" in difference_words(sampled, [[], []])


def test_rows_stand_apart_where_the_strategies_differ():
    moved = replace(TRACE, rows=TRACE.rows | {"start": TRACE.rows["start"] + 1})
    for other, expected in ((TRACE, False), (moved, True)):
        assert stand_apart((TRACE, other), 0, 1) is expected
        assert stand_apart((TRACE, other), 1, 2) is expected, "it ended in round 1"
    assert not stand_apart((TRACE, moved), 2, 0), "it has not begun"
