"""`sv.watch`: foreign decoders are judged as what they are, and run as they did."""

import copy
import gc
import re
import threading
import warnings
import weakref
from contextlib import ExitStack
from typing import Any

import decoder_work
import numpy as np
import pytest
import torch
from conftest import EOS as TINY_EOS
from conftest import VOCABULARY, generate_alone, make_pair, make_prompts
from decoder_work import EOS, MAX_NEW_TOKENS, K, named, pair, prompts, reference, watched
from decoders import CASES, SAMPLED, Case
from masking_decoder import MaskingDecoder
from transformers import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import specviz as sv
from specviz.checks.watch.requests import common

# Right decoders that do more work than they must, or are right by luck, as the report says.
WASTEFUL = {
    "realign.ShiftedRows": "positions",
    "no_cache.NoCache": "read again",
    "one_row.TargetReadsTwo": "read again",
    "rollback.Rollback": "thrown away",
}
ROUNDED = {"dtype": torch.bfloat16}  # K/V, which leaves the texts as they are
SETTINGS = {"num_draft_tokens": K, "batch_size": 4, "max_new_tokens": 24, "progress": False}


def eos_of(case: Case) -> tuple[int, ...]:
    return EOS if case.needs_eos else ()


def quick(cases: tuple[Case, ...]) -> list[Any]:
    """Return all of them. Those after the first with one effect and rule are marked slow."""
    seen: set[tuple[str, str]] = set()
    found: list[Any] = []
    for case in cases:
        kind = (case.affects, str(case.rule))
        marks = [pytest.mark.slow] if kind in seen else []
        found.append(pytest.param(case, marks=marks, id=case.name))
        seen.add(kind)
    return found


@pytest.mark.sweep(16)
@pytest.mark.parametrize("case", quick(CASES))
def test_a_decoder_is_judged_as_what_it_is(case: Case) -> None:
    seen, outputs = watched(case, eos=eos_of(case))
    due = reference(eos_of(case))
    wrong = {i for i, output in enumerate(outputs) if output != due[i]}
    report = seen.audit(
        prompts(), outputs, max_new_tokens=MAX_NEW_TOKENS, eos_token_ids=eos_of(case)
    )
    costs = [cost.name for cost in report.costs]
    if case.affects == "text":
        assert report.faults[0].rule == case.rule, report
        assert set(report.wrong) == wrong <= {fault.request for fault in report.faults}
        for fault in report.faults:
            prompt = len(prompts()[fault.request])
            first = common(outputs[fault.request], due[fault.request]) + prompt
            assert fault.index <= first, "the fault is not later than the first wrong token"
        assert str(report).startswith("wrong: ")
        assert "thrown away" not in costs or not wrong, "nothing is called right of a wrong text"
        return
    assert report.is_right, report
    assert not wrong
    assert report.wrong == []
    assert str(report).startswith(("right: ", "near ties only: "))
    if case.affects == "speed":
        assert costs, "what it costs is named"
        assert (case.model == "draft") == ("draft cache" in costs)
    else:
        assert costs == [WASTEFUL[case.name]] if case.name in WASTEFUL else costs == []


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", ["one_row.OneRow", "holes.Holes", "slots.Slots", "lookup.Lookup"])
def test_outputs_can_be_left_out(name: str) -> None:
    seen, outputs = watched(named(name))
    report = seen.audit(prompts(), eos_token_ids=[])
    assert report.is_right, report
    for request, output in zip(report.requests, outputs, strict=True):
        assert common(request.output, output) == len(output)


@pytest.mark.slow
def test_texts_are_read_with_a_tokenizer() -> None:
    texts = [sv.load_prompts()[i] for i in decoder_work.PROMPTS]
    seen, outputs = watched(named("one_row.OneRow"), tokenizer=pair().tokenizer)
    written = [pair().tokenizer.decode(output) for output in outputs]
    assert seen.audit(texts, written).is_right


@pytest.mark.slow
@pytest.mark.parametrize("case", SAMPLED[:1], ids=lambda case: case.name)
def test_sampled_runs_are_judged_by_their_forwards(case: Case) -> None:
    seen, outputs = watched(case, temperature=1.0, seed=0)
    report = seen.audit(prompts(), outputs, greedy=False, eos_token_ids=[])
    assert report.is_right
    assert str(report).startswith("right, as far as the forwards of 4 texts go")
    assert not seen.audit(prompts(), outputs, eos_token_ids=[]).is_right


def test_forwards_of_other_texts_do_no_harm() -> None:
    fresh = sv.load_pair(device="cpu", dtype="float32")  # the engine tries a new pair first
    ids = [list(prompt) for prompt in prompts()]
    with sv.watch(fresh.target, fresh.draft) as seen:
        result = sv.generate(fresh, ids, strategy="eqspec", **SETTINGS)
    report = seen.audit(ids, result.tokens, eos_token_ids=[])
    assert report.is_right
    assert sv.check_invariants(report.trace) == []


def engine_run(strategy: object) -> tuple[sv.WatchReport, sv.Trace]:
    ids = [list(prompt) for prompt in prompts()]
    with sv.watch(pair().target, pair().draft) as seen:
        result = sv.generate(pair(), ids, strategy=strategy, record=True, **SETTINGS)
    return seen.audit(ids, result.tokens, eos_token_ids=[]), result.trace


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", ["autoregressive", "inplace", "eqspec", "exspec", "masking"])
def test_runs_of_the_engine_are_right(name: str) -> None:
    report, trace = engine_run(name)
    assert report.is_right
    assert report.costs == []
    found = report.trace
    for column in ("length", "drafted", "gained"):
        assert np.array_equal(found.rows[column], trace.rows[column]), column
    going_on = trace.rows["finished"] == 0  # a last round may accept more than the budget
    assert going_on.sum() > 10
    assert np.array_equal(found.rows["accepted"][going_on], trace.rows["accepted"][going_on])
    assert sv.check_invariants(found) == []


@pytest.mark.sweep(6)
@pytest.mark.parametrize(
    ("strategy", "options", "rule"),
    [
        ("masking", {"positions": "column"}, "positions"),
        ("inplace", {"break_invariant": "mask"}, "mask"),
        ("eqspec", {"break_invariant": "kv"}, "kv"),
        ("eqspec", {"break_invariant": "positions"}, "positions"),
        ("inplace", {"break_invariant": "bonus"}, "bonus"),
    ],
)
def test_faults_of_the_engine_are_named_as_by_its_record(
    strategy: str, options: dict[str, str], rule: str
) -> None:
    report, trace = engine_run(sv.strategy(strategy, **options))
    assert report.faults[0].rule == rule
    recorded = sv.check_invariants(trace)
    of_target = [each for each in recorded if each.rule == rule and each.model != "draft"]
    assert report.faults[0].round <= of_target[0].round + 1


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", ["one_row.OneRow", "holes.Holes", "slots.Slots"])
def test_rounding_in_bfloat16_is_no_fault(name: str) -> None:
    small = sv.load_pair(device="cpu", dtype="bfloat16")
    seen, outputs = watched(named(name), (small.target, small.draft))
    assert seen.audit(prompts(), outputs, eos_token_ids=[]).is_right


def test_a_decoder_in_a_thread_is_seen() -> None:
    case = named("one_row.OneRow")
    given = [list(prompt) for prompt in prompts()[:2]]
    outputs: list[list[int]] = []

    def work() -> None:
        outputs.extend(case.decode(pair().target, pair().draft, given, K, 8, ()))

    with sv.watch(pair().target, pair().draft) as seen:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen.audit(given, outputs, eos_token_ids=[]).is_right


def hooks_of(model: Any) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_a_decoder_that_raises_keeps_what_was_seen() -> None:
    given = [list(prompt) for prompt in prompts()[:1]]
    case = named("one_row.OneRow")

    class StopError(Exception):
        pass

    calls = 0

    def stop(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise StopError

    before = hooks_of(pair().target)
    hook = pair().target.register_forward_pre_hook(stop)
    try:
        with pytest.raises(StopError), sv.watch(pair().target, pair().draft) as seen:
            case.decode(pair().target, pair().draft, given, K, MAX_NEW_TOKENS, ())
    finally:
        hook.remove()
    assert hooks_of(pair().target) == before
    report = seen.audit(given, eos_token_ids=[])
    assert report.is_right
    assert len(report.rounds) >= 4


@pytest.mark.parametrize("second", ["llama", "qwen3"])
def test_blocks_that_overlap_leave_nothing_behind(second: str) -> None:
    """The first block closes first, as in two threads. The second one still sees all."""
    before = dict(ALL_ATTENTION_FUNCTIONS._local_mapping)
    ids = torch.ones(1, 4, dtype=torch.long)
    first, other = make_pair("llama").target, make_pair(second).target
    early, late = ExitStack(), ExitStack()
    with torch.no_grad(), late:
        with early:
            seen = early.enter_context(sv.watch(first))
            again = late.enter_context(sv.watch(other))
            first(ids)
        other(ids)
        assert len(seen.forwards) == 1
        assert all(forward.seen is not None for forward in seen.forwards + again.forwards)
    assert ALL_ATTENTION_FUNCTIONS._local_mapping == before
    kept = weakref.ref(seen.forwards[0])
    del early, late, seen, again
    gc.collect()
    assert kept() is None


def test_two_blocks_on_one_model_let_go_of_its_cache() -> None:
    cache = DynamicCache()
    ids = torch.ones(1, 4, dtype=torch.long)
    target = make_pair("llama").target
    with torch.no_grad(), sv.watch(target) as outer, sv.watch(target) as inner:
        target(ids, past_key_values=cache)
        assert "update" not in vars(cache)
    assert torch.equal(outer.forwards[0].held, inner.forwards[0].held)


def test_attention_that_replaces_another_while_it_is_watched_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = ALL_ATTENTION_FUNCTIONS["sdpa"]
    calls = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return library(*args, **kwargs)

    target = make_pair("llama").target
    with torch.no_grad(), sv.watch(target) as seen:
        monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", counted)
        target(torch.ones(1, 4, dtype=torch.long))
    assert len(calls) == target.config.num_hidden_layers
    assert seen.forwards[0].seen is not None


def test_eos_that_the_generation_config_switches_off_ends_no_text() -> None:
    """`generate` goes on past the EOS of the model's config then, and so does specviz."""
    tiny = copy.deepcopy(make_pair("llama").target)
    tiny.generation_config.eos_token_id = None
    given = [make_prompts()[i] for i in (0, 2, 5)]
    with sv.watch(tiny) as seen:
        outputs = generate_alone(tiny, given, 12)
    assert any(set(output[:-1]) & set(TINY_EOS) for output in outputs)
    report = seen.audit(given, outputs)
    assert report.is_right, report


# What is given to `audit` (prompts, outputs) and what it says, for greedy texts of three prompts.
REFUSED: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "eos": (lambda p, o: (p, o), "eos_token_ids must be a list, got 5; ", {"eos_token_ids": 5}),
    "output": (
        lambda p, o: (p, [[VOCABULARY, *o[0]], *o[1:]]),
        "outputs[0] has the id 97, but target has a vocabulary of 97", {},
    ),
    "prompt": (
        lambda p, o: ([p[0] + [500], *p[1:]], o),
        "prompts[0] has the id 500, but target has a vocabulary of 97", {},
    ),
    "tensor": (
        lambda p, o: (p, torch.ones(3, 2)), "outputs must be a list, got", {}
    ),
    "array": (
        lambda p, o: (np.ones((3, 2)), o), "pass prompts.tolist()", {}
    ),
    "too few": (
        lambda p, o: (p, o[:2]), "outputs must be one for each of the 3 prompts, got 2", {}
    ),
    "text": (lambda p, o: (["a"] * 3, o), "prompts[0] is a text, and there is no tokenizer", {}),
    "swapped": (
        lambda p, o: (p, [o[1], o[0], o[2]]), "outputs[0] is the text of request 1; return the ", {}
    ),
    "twice": (
        lambda p, o: (p, [o[0], o[2], o[2]]), "outputs[1] is the text of request 2; return the ", {}
    ),
    "prompts in all": (
        lambda p, o: (p, [a + b for a, b in zip(p, o, strict=True)]),
        "outputs[0] begins with its prompt; pass the new", {},
    ),
    "prompts in all, sampled": (
        lambda p, o: (p, [a + b for a, b in zip(p, o, strict=True)]),
        "outputs[0] begins with its prompt; ", {"greedy": False},
    ),
    "prompt in one": (
        lambda p, o: (p, [o[0], p[1] + o[1], o[2]]),
        "outputs[1] begins with its prompt; pass the new", {},
    ),
    "padded": (
        lambda p, o: (p, [[0] * (12 - len(a)) + a + b for a, b in zip(p, o, strict=True)]),
        "outputs[0] begins with padding and its prompt; pass the new tokens alone", {},
    ),
    "other": (
        lambda p, o: (p, [[7, *each] for each in o]), "outputs[0] is not what was fed in ", {}
    ),
    "reversed": (
        lambda p, o: (p, [each[::-1] for each in o]), "is not what was fed", {}
    ),
    "not read": (
        lambda p, o: ([[7, 7, 7, 7], *p[1:]], o), "prompts[0] was not read by the target", {}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_not_decoded_is_refused(name: str) -> None:
    given = [make_prompts()[i] for i in (5, 4, 2)]
    with sv.watch(make_pair("llama").target) as seen:
        outputs = generate_alone(seen.target, given, 8)
    change, message, options = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        seen.audit(*change(given, outputs), **options)


def one_by_one(target: Any, prompt: list[int], shift: int = 99, dtype: Any = None) -> list[int]:
    """Decode 8 tokens greedily, without drafts.

    From forward `shift` on, positions are too large by one. `dtype` is what K/V is rounded to.
    """
    cache = DynamicCache()
    text = list(prompt)
    while len(text) < len(prompt) + 8:
        start = cache.get_seq_length()
        late = int(len(text) - len(prompt) >= shift)
        output = target(
            torch.tensor([text[start:]]),
            position_ids=torch.arange(start, len(text))[None] + late,
            past_key_values=cache,
        )
        text.append(int(output.logits[0, -1].argmax()))
        for layer in cache.layers if dtype else ():
            layer.keys, layer.values = (
                each.to(dtype).to(each.dtype) for each in (layer.keys, layer.values)
            )
    return text[len(prompt) :]


@torch.no_grad()
@pytest.mark.parametrize(
    ("spoilt", "verdict"),
    [
        (({}, ROUNDED), "wrong: the decoding of 1 of 2 texts, though all texts are the target's"),
        ((ROUNDED, ROUNDED), "wrong: the decoding of 2 of 2 texts, though all texts are the "),
        (({"shift": 1}, ROUNDED), "wrong: 1 of 2 texts; row 0 (request 0) since round 1, "),
    ],
    ids=["one", "all", "none"],
)
def test_texts_that_a_fault_left_right_are_not_counted_as_wrong(
    spoilt: tuple[dict[str, Any], ...], verdict: str
) -> None:
    target = make_pair("llama").target
    given = make_prompts()[3:5]
    with sv.watch(target) as seen:
        outputs = [one_by_one(target, p, **how) for p, how in zip(given, spoilt, strict=True)]
    due = [one_by_one(target, prompt) for prompt in given]
    report = seen.audit(given, outputs, eos_token_ids=[])
    assert str(report).startswith(verdict), report
    assert len(report.faults) == sum(map(bool, spoilt))
    assert list(report.wrong) == [i for i in range(2) if outputs[i] != due[i]]


@torch.no_grad()
def test_what_was_seen_prints_without_its_tensors() -> None:
    given = make_prompts()[4:6]
    with sv.watch(make_pair("llama").target) as seen:
        outputs = [one_by_one(seen.target, prompt) for prompt in given]
    requests = seen.audit(given, outputs, eos_token_ids=[]).requests
    assert str(given[0]) in repr(requests)
    for each in (requests, requests[0].rounds, requests[0].parts):
        assert "tensor" not in repr(each)
        assert len(repr(each)) < 2000
    assert len(repr(seen.forwards[0])) < 200, "its tokens, and nothing large"


def test_drafts_that_are_read_alone_belong_to_their_row() -> None:
    given = [list(prompt) for prompt in prompts()]
    size = pair().vocabulary_size
    writer = sv.TraceWriter(given, vocabulary_size=size, num_draft_tokens=K, decoder="masking")
    decoder = MaskingDecoder(pair(), given, writer)
    with sv.watch(pair().target, pair().draft) as seen:
        rows = decoder.decode(3)
    outputs = [row[len(prompt) :] for row, prompt in zip(rows, given, strict=True)]
    report = seen.audit(given, outputs, eos_token_ids=[])
    assert report.is_right
    assert sv.check_invariants(report.trace) == []


@pytest.mark.slow
def test_models_that_cannot_be_watched_are_refused() -> None:
    target, draft = pair().target, pair().draft
    with sv.watch(target, draft) as seen:
        pass
    with pytest.raises(ValueError, match="target was not called inside the block"):
        seen.audit([[1, 2]], [[3]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch.compile imports is deprecated
        compiled = torch.compile(target)
    with pytest.raises(ValueError, match="target is compiled"):
        sv.watch(compiled, draft)
    with pytest.raises(ValueError, match="target must be a model of transformers, got 3"):
        sv.watch(3)
    with pytest.raises(ValueError, match="draft must be another model than target"):
        sv.watch(target, target)
