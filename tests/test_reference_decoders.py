"""The decoders in reference/: the target's own texts, whatever the draft, and nothing for nothing.

What the files may import is in test_boundaries.py; what the audit says of mistakes in them, in
test_watch_reference.py.
"""

import copy
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import make_prompts
from decoder_work import counted, watched
from families import perturbed
from tiny_models import build, families, make_config
from transformers import PreTrainedModel

import specviz as sv
from reference import inplace, realign

FOLDER = Path(__file__).parents[1] / "reference"
DECODERS = {"realign": realign, "inplace": inplace}
NAMES = tuple(DECODERS)
# Eager attention is tested in float32: in float64, that of Llama and Qwen3 makes NaN of padding.
MODELS = {
    "llama": ("llama", "sdpa", torch.float64),
    "qwen3": ("qwen3", "sdpa", torch.float64),
    "gpt2": ("gpt2", "sdpa", torch.float64),
    "falcon": ("falcon", "sdpa", torch.float64),
    "llama-float32": ("llama", "sdpa", torch.float32),
    "qwen3-float32": ("qwen3", "eager", torch.float32),
    "gpt2-float32": ("gpt2", "sdpa", torch.float32),
    "falcon-float32": ("falcon", "eager", torch.float32),
}
EOS = [5, 9, 17, 40]
NEW_TOKENS = 20


@cache
def target(model: str) -> PreTrainedModel:
    family, attention, dtype = MODELS[model]
    return build(family, make_config(families()[family]), attention).to(dtype)


@cache
def draft(model: str, kind: str = "near") -> PreTrainedModel:
    """Return a draft that agrees often, always or by chance only."""
    if kind == "unrelated":
        return target("gpt2" if model != "gpt2" else "llama")
    return copy.deepcopy(target(model)) if kind == "equal" else perturbed(target(model))


@cache
def reference(model: str) -> list[list[int]]:
    """What `generate` writes for each of `make_prompts()` alone."""
    texts = []
    for prompt in make_prompts():
        ids = torch.tensor([prompt])
        text = target(model).generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=EOS,
        )
        texts.append(text[0, len(prompt) :].tolist())
    return texts


def decode(name: str, model: str, B: int, K: int, kind: str = "near") -> list[list[int]]:
    prompts = make_prompts()[:B]
    return DECODERS[name].decode(target(model), draft(model, kind), prompts, K, NEW_TOKENS, EOS)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_texts_are_those_of_generate(name, model):
    for B, K in ((1, 3), (3, 5), (8, 1), (10, 3)):
        assert decode(name, model, B, K) == reference(model)[:B], (B, K)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", NAMES)
def test_any_batch_size(name):
    for B in range(1, 9):
        assert decode(name, "llama", B, 3) == reference("llama")[:B], B


@pytest.mark.sweep(20)
@pytest.mark.parametrize("model", ["llama", "qwen3", "gpt2", "falcon"])
@pytest.mark.parametrize("name", NAMES)
def test_the_library_writes_what_the_decoder_writes(name, model, monkeypatch):
    """The decoder is the reference. Four rows take ten prompts, so the library refills them."""
    expected = decode(name, model, 10, 3)
    monkeypatch.setattr(target(model).generation_config, "eos_token_id", EOS)
    pair = sv.Pair(target(model), draft(model))
    for strategy in ("eqspec", "inplace"):
        run = sv.generate(
            pair,
            make_prompts(),
            strategy=sv.strategy(strategy, refill=True),
            batch_size=4,
            num_draft_tokens=3,
            max_new_tokens=NEW_TOKENS,
            progress=False,
        )
        assert run.tokens == expected, strategy


@pytest.mark.sweep(6)
@pytest.mark.parametrize("eos", [None, 5, [5, 40]])
@pytest.mark.parametrize("name", NAMES)
def test_eos_and_budget(name, eos):
    """The texts are the beginnings of longer ones."""
    prompts = make_prompts()[:6]
    models = (target("qwen3"), draft("qwen3"))
    longer = DECODERS[name].decode(*models, prompts, 3, 24)
    ends = [] if eos is None else [eos] if isinstance(eos, int) else eos
    for budget in (1, 7):
        due = []
        for text in longer:
            stops = [i for i, token in enumerate(text[:budget], 1) if token in ends]
            due.append(text[: min([budget, *stops])])
        assert DECODERS[name].decode(*models, prompts, 3, budget, eos) == due


def test_the_work_is_ragged():
    """Rows end by EOS and by the budget, and accept different numbers of drafts."""
    lengths = [len(text) for text in reference("llama")]
    assert len(set(lengths)) > 4
    assert NEW_TOKENS in lengths
    assert any(text[-1] not in EOS for text in reference("llama"))
    accepted = audit(inplace, "llama").trace.rows["accepted"]
    assert {0, 1, 2, 3} <= set(accepted.tolist())


@pytest.mark.parametrize("name", NAMES)
def test_an_equal_draft_is_accepted_whole(name):
    """So the draft has read its own last draft, and no round is lost."""
    draft("llama", "equal")  # copies the target, which later has the counter's hook
    for K in (1, 3, 5):
        with counted(target("llama").lm_head) as cost:
            outputs = decode(name, "llama", 8, K, "equal")
        assert outputs == reference("llama")[:8]
        assert cost.forwards == -(-NEW_TOKENS // (K + 1))


@pytest.mark.parametrize("name", NAMES)
def test_an_unrelated_draft_changes_nothing(name):
    for model in ("llama", "gpt2"):
        assert decode(name, model, 8, 3, "unrelated") == reference(model)[:8]


def audit(decoder: ModuleType, model: str, K: int = 3) -> sv.WatchReport:
    prompts = make_prompts()[2:7]
    models = (target(model), draft(model))
    seen, outputs = watched(decoder, models, prompts, K, NEW_TOKENS, EOS)
    return seen.audit(prompts, outputs, max_new_tokens=NEW_TOKENS, eos_token_ids=EOS)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_the_audit_finds_nothing(name, model):
    report = audit(DECODERS[name], model)
    assert str(report).startswith("right: 5 texts")
    assert report.is_right
    assert list(report.costs) == []


@pytest.mark.slow
def test_the_page_shows_how_to_check_a_copy(capsys):
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile("\n".join(blocks), "README.md", "exec"), {})
    printed = capsys.readouterr().out.strip()
    assert printed.startswith("right: ")
    assert printed in page


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_texts_are_those_of_generate_on_a_gpu(name):
    prompts = make_prompts()
    models = [copy.deepcopy(model).to("cuda") for model in (target("llama"), draft("llama"))]
    assert DECODERS[name].decode(*models, prompts, 3, NEW_TOKENS, EOS) == reference("llama")
