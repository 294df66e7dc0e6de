"""OpenVINO GenAI as a baseline: what is asked of it, what it may not be asked for, and its texts.

Its own code runs only in the last test, which needs the extra openvino.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch
from conftest import generate_one_by_one, make_pair, make_prompts
from transformers import DynamicCache

import specviz as sv
from specviz.bench import Grid, OpenVino, OpenVinoSpeculative, StoredPair, failures, run_bench
from specviz.bench.baselines import openvino
from specviz.bench.baselines.openvino_model import _Step

NEW = 12


class Request:
    """A row of `Pipeline`, which gets its next tokens in each step."""

    def __init__(self, tokens: Sequence[int], each: int) -> None:
        self.tokens = tokens
        self.each = each
        self.written = 0

    def step(self) -> None:
        self.written += self.each

    def get_status(self) -> str:
        return "running" if self.written < len(self.tokens) else "finished"

    def read_all(self) -> list[Any]:
        return [SimpleNamespace(generated_ids=self.tokens[: self.written])]


class Pipeline:
    """Stands in for a ContinuousBatchingPipeline: writes known tokens, `each` of a row a step.

    It goes one token beyond the budget and beyond EOS, which a baseline has to cut.
    """

    def __init__(self, texts: dict[tuple[int, ...], list[int]], each: int) -> None:
        self.texts = texts
        self.each = each
        self.requests: list[Request] = []
        self.configs: list[Any] = []

    def add_request(self, number: int, ids: Any, config: Any) -> Request:
        (prompt,) = ids.tolist()
        self.requests.append(Request([*self.texts[tuple(prompt)], 1], self.each))
        self.configs.append(config)
        return self.requests[-1]

    def has_non_finished_requests(self) -> bool:
        return any(request.get_status() == "running" for request in self.requests)

    def step(self) -> None:
        for request in self.requests:
            request.step()


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Pipeline]]:
    """The drafts and the stand-ins of all pipelines that are made from now on."""
    genai = ModuleType("openvino_genai")
    genai.GenerationConfig = SimpleNamespace
    genai.GenerationStatus = SimpleNamespace(RUNNING="running")
    modules = {"openvino_genai": genai, "openvino": SimpleNamespace(Tensor=lambda ids: ids)}
    monkeypatch.setattr(openvino, "import_module", modules.__getitem__)
    monkeypatch.setattr(openvino, "find_spec", lambda name: object())
    monkeypatch.setattr(openvino, "_pipelines", WeakKeyDictionary())
    made: list[tuple[Any, Pipeline]] = []

    def make(pair: sv.Pair, draft: Any, threads: int) -> Pipeline:
        texts = generate_one_by_one("llama", torch.float32, NEW)
        prompts = map(tuple, make_prompts())
        each = 1 if draft is None else 2
        made.append((draft, Pipeline(dict(zip(prompts, texts, strict=True)), each)))
        return made[-1][1]

    monkeypatch.setattr(openvino, "_make_pipeline", make)
    return made


def test_it_writes_what_the_pipeline_wrote_and_counts_its_steps(
    pipelines: list[tuple[Any, Pipeline]],
) -> None:
    pair = make_pair("llama")
    prompts = make_prompts()
    expected = generate_one_by_one("llama", torch.float32, NEW)
    *_, plain = OpenVino().write(pair, prompts, 4, NEW, 0)
    assert plain.tokens == expected
    lengths = [len(tokens) + 1 for tokens in expected]  # with the token beyond
    batches = [lengths[first : first + 4] for first in range(0, len(lengths), 4)]
    assert plain.forwards == sum(map(max, batches))
    assert plain.row_forwards == sum(lengths)

    ((draft, pipeline),) = pipelines
    assert draft is None
    (config,) = {id(each): each for each in pipeline.configs[:1]}.values()
    assert (config.do_sample, config.max_new_tokens) == (False, NEW)
    eos = pair.eos_token_ids
    assert (config.eos_token_id, config.stop_token_ids) == (eos[0], set(eos))
    assert not hasattr(config, "num_assistant_tokens")


def test_drafts_come_from_the_pairs_draft_model(pipelines: list[tuple[Any, Pipeline]]) -> None:
    pair = make_pair("llama")
    how = OpenVinoSpeculative()
    for _ in range(2):
        *_, written = how.write(pair, make_prompts()[:3], 3, NEW, 5)
    assert written.tokens == generate_one_by_one("llama", torch.float32, NEW)[:3]
    # Two tokens a step.
    assert written.row_forwards == sum(len(tokens) // 2 + 1 for tokens in written.tokens)
    ((draft, pipeline),) = pipelines  # the second run has used the first one's
    assert draft is pair.draft
    assert {config.num_assistant_tokens for config in pipeline.configs} == {5}


@pytest.mark.slow
def test_what_it_cannot_do_is_said_in_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = make_pair("llama")
    grid = Grid(("autoregressive", "openvino"), (2,), (3,), (4,), repetitions=1)
    monkeypatch.setattr(openvino, "find_spec", lambda name: None)
    table, _ = run_bench(pair, make_prompts()[:2], grid, progress=False)
    assert failures(table)[0].endswith(
        "ImportError: openvino needs OpenVINO GenAI, which is not installed; "
        'run: pip install "specviz[openvino]"'
    )
    assert table["tokens_per_s"].notna().tolist() == [True, False]

    monkeypatch.setattr(openvino, "find_spec", lambda name: object())
    said = r"^openvino decodes in float32 on the CPU, got a pair in bfloat16 on cpu; "
    with pytest.raises(ValueError, match=said):
        OpenVino().prepare(make_pair("llama", torch.bfloat16))
    with pytest.raises(ValueError, match=r"^openvino_speculative needs pair\.tokenizer, got None"):
        OpenVinoSpeculative().prepare(pair)


@torch.inference_mode()
def test_the_forward_that_is_converted_continues_what_it_wrote() -> None:
    model = make_pair("llama").target
    ids = torch.tensor([[5, 9, 3, 7, 2], [4, 4, 8, 1, 6]])
    positions = torch.arange(5).expand(2, 5)
    expected = model(ids, past_key_values=DynamicCache()).logits
    for vocabulary in (expected.shape[-1], 7):
        step = _Step(model, vocabulary)
        first, *flat = step(ids[:, :2], torch.ones_like(ids[:, :2]), positions[:, :2], [])
        past = list(zip(flat[::2], flat[1::2], strict=True))
        then, *flat = step(ids[:, 2:], torch.ones_like(ids), positions[:, 2:], past)
        assert [states.shape[2] for states in flat] == [5] * len(flat)
        logits = torch.cat([first, then], dim=1)
        torch.testing.assert_close(logits, expected[..., :vocabulary])


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("openvino_genai") is None,
    reason='needs OpenVINO GenAI: pip install "specviz[openvino]"',
)
def test_openvino_writes_the_targets_texts() -> None:
    names = ("autoregressive", "openvino", "openvino_speculative")
    grid = Grid(names, (1, 3), (3,), (16,), repetitions=1)
    table, _ = run_bench(StoredPair(), sv.load_prompts(limit=4), grid, progress=False)
    assert (table["failure"] == "").all(), table["failure"].tolist()
    assert (table["exact_match"] == 1).all()
    assert (table["tokens_per_s"] > 0).all()
    lengths = table.set_index(["strategy", "batch_size"])["mean_acceptance_length"]
    assert lengths["openvino", 1] == lengths["openvino", 3] == 1
    assert 1.5 < lengths["openvino_speculative", 3] <= 4
    assert abs(lengths["openvino_speculative", 1] - lengths["openvino_speculative", 3]) < 0.5
    rounds = table.set_index(["strategy", "batch_size"])["rounds"]
    assert rounds["openvino_speculative", 1] < 0.7 * rounds["openvino", 1]
