"""The decoders of 16_debug: each has one fault, `sv.watch` names it, and one line mends it.

The faults are written down here and in the solutions, not beside the code that a reader debugs.
"""

import inspect
import pkgutil
from functools import cache
from types import ModuleType

import pytest
import torch
from scipy import stats

import specviz as sv
from checks import decoders
from checks.decoders import crop, lookup, mystery, refill, repad, replay, sampling, slots, static
from checks.decoders.mending import mended, shown

PROMPTS = (0, 1, 6, 9)  # bundled ones, of 10 to 28 tokens; 0 and 6 begin with the same two
ENDING = (8, 10, 14)  # whose texts end with EOS
NEW_TOKENS = 24
EOS = 2
# The line that is wrong and what mends it, the rule that is broken first (None if the text is
# right), and words of the report as the notebook explains them.
BROKEN = {
    crop: ("forget(target_cache, K - len(new))", "forget(target_cache, K - a)", "mask", "sees"),
    repad: ("start : len(row) - 1]", "start : start + len(row) - 1]", "kv", "holds zeros"),
    static: ("own[:, None] + 1", "own[:, None]", "mask", "token 0 sees slot"),
    refill: (
        "seen[row, start:] = 1",
        "seen[row] = torch.arange(seen.shape[1]) >= start",
        "mask",
        "of request ",
    ),
    mystery: (
        "attention_mask=seen, past",
        "attention_mask=seen, position_ids=positions_of(seen)[:, -1:], past",
        None,
        "draft cache: the draft model reads a wrong context in 4 of 4 requests",
    ),
}
EOS_CUT = (
    "            tokens += new\n",
    "            new = new[: new.index(eos) + 1] if eos in new else new\n"
    "            tokens += new\n",
)
Q_LINE = ("q.append(logits.softmax(-1))", "q.append((logits / temperature).softmax(-1))")


@cache
def pair() -> sv.Pair:
    return sv.load_pair(device="cpu", dtype="float32")


def prompts(numbers: tuple[int, ...] = PROMPTS) -> list[list[int]]:
    return [pair().tokenizer(sv.load_prompts()[number]).input_ids for number in numbers]


def texts(given: list[list[int]]) -> list[list[int]]:
    settings = {"batch_size": 1, "max_new_tokens": NEW_TOKENS, "progress": False}
    return sv.generate(pair(), given, strategy="autoregressive", **settings).tokens


def audited(decoder: ModuleType, given: list[list[int]]) -> tuple[list[list[int]], sv.WatchReport]:
    with sv.watch(pair().target, pair().draft) as watched:
        outputs = decoder.decode(pair().target, pair().draft, given, max_new_tokens=NEW_TOKENS)
    return outputs, watched.audit(given, outputs)


def name(decoder: ModuleType) -> str:
    return decoder.__name__.rpartition(".")[2]


@pytest.mark.slow  # the solutions of 16_debug find and mend the same faults
@pytest.mark.parametrize("decoder", BROKEN, ids=name)
def test_the_watch_names_the_fault_and_a_line_mends_it(decoder: ModuleType) -> None:
    old, new, rule, words = BROKEN[decoder]
    due = texts(prompts())
    outputs, report = audited(decoder, prompts())
    assert words in str(report)
    assert report.is_right == (outputs == due) == (rule is None)
    if rule is not None:
        assert report.faults[0].rule == rule
        broken = {each.rule for each in sv.check_invariants(report.trace)}
        assert broken & {"mask", "kv"}, "the record shows it, too"
    if decoder is repad:
        lengths = [len(prompt) for prompt in prompts()]
        right = [output == text for output, text in zip(outputs, due, strict=True)]
        assert right == [length == max(lengths) for length in lengths]
    outputs, report = audited(mended(decoder, old, new), prompts())
    assert outputs == due
    assert report.is_right
    assert words not in str(report)
    assert sv.check_invariants(report.trace) == []


@pytest.mark.slow
def test_eos_among_accepted_drafts_is_found() -> None:
    parts = prompts(ENDING)
    shots = [part + text + part for part, text in zip(parts, texts(parts), strict=True)]
    due = texts(shots)
    assert all(text[-1] == EOS for text in due)
    outputs, report = audited(lookup, shots)
    assert outputs != due
    assert report.faults[0].rule == "eos"
    assert audited(lookup, prompts()[:2])[1].is_right, "without EOS nothing is wrong"
    outputs, report = audited(mended(lookup, *EOS_CUT), shots)
    assert outputs == due
    assert report.is_right


@pytest.mark.slow
def test_a_sampler_whose_forwards_are_right_may_sample_wrongly() -> None:
    """The right sampler fails one run in a million; both draws are seeded."""
    with sv.watch(pair().target, pair().draft) as watched:
        outputs = sampling.decode(pair().target, pair().draft, prompts(), max_new_tokens=8)
    assert watched.audit(prompts(), outputs, greedy=False).is_right
    assert first_token_p_value(sampling) < 1e-6
    assert first_token_p_value(mended(sampling, *Q_LINE)) > 1e-6


def first_token_p_value(decoder: ModuleType, rows: int = 200, temperature: float = 0.5) -> float:
    """Return how likely counts of the likeliest first token are, if it has probability p."""
    (prompt,) = prompts((2,))
    options = {"K": 1, "max_new_tokens": 1, "temperature": temperature}
    outputs = decoder.decode(pair().target, pair().draft, [prompt] * rows, **options)
    with torch.inference_mode():
        logits = pair().target(torch.tensor([prompt])).logits[0, -1]
    p = (logits / temperature).softmax(-1)
    best = int(p.argmax())
    count = sum(output == [best] for output in outputs)
    return float(stats.binomtest(count, rows, float(p[best])).pvalue)


def test_a_source_is_shown_whole_and_says_nothing_of_its_fault() -> None:
    others = {"common", "mending"}  # `slots` belongs to 19_capstone, `replay` to 20_state
    course = (*BROKEN, lookup, sampling, slots, replay)
    found = {module.name for module in pkgutil.iter_modules(decoders.__path__)}
    assert found == {name(decoder) for decoder in course} | others
    for decoder in course:
        source = inspect.getsource(decoder)
        for word in ("wrong", "fault", "bug", "mistake", "FIXME", "TODO", "should"):
            assert word not in source
        assert "import specviz" not in source
        page, folded = (shown(decoder, folded=folded).data for folded in (False, True))
        assert page.startswith(inspect.getdoc(decoder))
        assert "def decode(" in page
        code = page[page.index("```python\n") :]
        assert source.endswith(code.removeprefix("```python\n").removesuffix("```"))
        assert folded.endswith(f"</summary>\n\n{code}\n\n</details>")


def test_a_copy_is_mended_and_the_decoder_is_not() -> None:
    before = inspect.getsource(crop)
    copy = mended(crop, "K: int = 4", "K: int = 3")
    assert "K: int = 3" in inspect.getsource(copy)
    assert inspect.getsource(crop) == before
    assert "K: int = 2" in inspect.getsource(mended(copy, "K: int = 3", "K: int = 2"))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("no such line", "x", "occurs 0 times"),
        ("", "x", "occurs 0 times"),
        ("tokens", "x", "old must occur once"),
        (3, "x", "old and new must be texts, got 3"),
        ("K: int = 4", None, "got 'K: int = 4' and None"),
    ],
)
def test_what_cannot_be_replaced_is_refused(old: object, new: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        mended(crop, old, new)
