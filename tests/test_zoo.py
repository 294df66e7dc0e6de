"""The making of the embedded pair: corpus, tokenizer, windows, prompts, and a pair at toy size."""

import json
import re
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pair as making
import pytest
import torch
from corpus import (
    LIBRARY_REPEATS,
    SourceFile,
    Windows,
    continuations,
    cut_bundled_prompts,
    cut_prompts,
    encode_blocks,
    held_out_windows,
    is_held_out,
    mix_windows,
    read_corpus,
    split_blocks,
    split_documents,
    train_tokenizer,
)
from pair import Stage, build_model, next_token_loss, stage_batches
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

import specviz as sv
from specviz.zoo.training import (
    TrainingJob,
    learning_rate_factor,
    optimisers_for,
    train_on,
)


def test_a_file_is_cut_at_its_functions_and_classes():
    head = "#!x\nimport os\n\n\n"
    function = "@cache\n@wraps(\n    f,\n)\n\ndef f():\n    def g(): pass\n\n"
    text = head + function + "class C:\n    @x\n    def m(self): pass\nasync def h(): pass\nx = 1\n"
    assert split_blocks(text) == [
        "#!x\nimport os",
        "@cache\n@wraps(\n    f,\n)\ndef f():\n    def g(): pass",
        "class C:\n    @x\n    def m(self): pass",
        "async def h(): pass\nx = 1",
    ]
    assert split_blocks("\n \n\t\n") == []


def test_the_same_tenth_of_the_files_is_held_out_everywhere():
    """A fair draw of these names has a mean of 1000 and a standard deviation of 30."""
    assert [is_held_out(path) for path in ("asyncio/events.py", "test/test_os.py")] == [True, False]
    assert sum(is_held_out(f"{i}.py") for i in range(10_000)) == 958


def test_a_corpus_is_read_in_order_and_filtered(tmp_path):
    kept = {"b.py": "x = 1\n", "a/c.py": "y = 2\n", "test/test_b.py": "é = 3\n"}
    kept["test.py"] = "z = 4\n"
    left_out = ["site-packages/x.py", "encodings/cp1.py", "a/__pycache__/x.py", "a/x.txt"]
    left_out.append("config-3.11-linux/x.py")
    for name, text in {**kept, **dict.fromkeys(left_out, "x = 1\n"), "blank.py": " \n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    files = read_corpus(tmp_path)
    assert {file.path: file.text for file in files} == kept
    assert [file.path for file in files] == ["a/c.py", "b.py", "test/test_b.py", "test.py"]
    assert [file.path for file in files if file.is_test] == ["test/test_b.py"]
    assert all(file.held_out == is_held_out(file.path) for file in files)


def make_source(number: int) -> str:
    """Return a head, three functions of thirty lines, the first decorated, and a class."""
    lines = [f"    if x > {i}:\n        return total_{number} + {i} * {number}" for i in range(15)]
    body = "\n".join(lines)
    source = f'"""Module {number}."""\nimport os\n\n\n@cache\n'
    for name in ("first", "second", "third"):
        source += f"def {name}_{number}(x):\n{body}\n\n\n"
    return f"{source}class C{number}:\n    def run(self):\n{body}\n"


@pytest.fixture(scope="module")
def files() -> list[SourceFile]:
    """Return forty sources, one in four held out and one in five a test."""
    return [
        SourceFile(f"m{i}.py", make_source(i), held_out=i % 4 == 0, is_test=i % 5 == 1)
        for i in range(40)
    ]


@pytest.fixture(scope="module")
def tokenizer(files: list[SourceFile]) -> PreTrainedTokenizerFast:
    return train_tokenizer((file.text for file in files), vocabulary=400)


def test_a_trained_tokenizer_has_three_special_ids_and_loses_nothing(tokenizer):
    assert [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id] == [0, 1, 2]
    assert 259 < len(tokenizer) <= 400
    for text in (make_source(3), "", " \t\r\n\x00", "größe = '👩‍👩‍👧'", "<eos>"):
        ids = tokenizer(text)["input_ids"]
        assert ids[0] == 1
        assert tokenizer.decode(ids[1:]) == text
    # Tokens are longer than bytes.
    assert len(tokenizer(make_source(3))["input_ids"]) < len(make_source(3)) / 2


def test_blocks_are_encoded_as_documents(tokenizer, files):
    tokens = encode_blocks(tokenizer, files[0])
    assert tokens.dtype == np.uint16
    documents = split_documents(tokens, bos=1)
    for document, block in zip(documents, files[0].blocks, strict=True):
        assert document[0] == 1
        assert document.tolist().index(2) == len(document) - 1
        assert tokenizer.decode(document[1:-1]) == block
    blank = SourceFile("blank.py", "\n", held_out=False, is_test=False)
    assert encode_blocks(tokenizer, blank).shape == (0,)


def make_windows(rows: int = 3, length: int = 16, seed: int = 0) -> Windows:
    """Return windows over two library files and three test files. No token occurs twice."""
    bounds = [0, 150, 190, 600, 602, 1000]
    parts = [np.arange(first, stop, dtype=np.uint16) for first, stop in pairwise(bounds)]
    return Windows(parts[:2], parts[2:], rows, length, seed)


def test_a_step_always_reads_the_same_batch():
    """Batches do not depend on their order, so a resumed run reads the same ones."""
    windows = make_windows()
    again = make_windows()
    in_order = [windows.batch(step) for step in range(3 * windows.steps_per_epoch)]
    for step in reversed(range(len(in_order))):
        assert np.array_equal(again.batch(step), in_order[step])
    assert {(batch.shape, batch.dtype.name) for batch in in_order} == {((3, 17), "int64")}
    # Each epoch has its own order.
    assert not np.array_equal(in_order[0], in_order[windows.steps_per_epoch])
    assert not np.array_equal(in_order[0], make_windows(seed=1).batch(0))


def test_an_epoch_reads_library_tokens_three_times_and_others_once():
    windows = make_windows()
    for epoch in range(2):
        first = epoch * windows.steps_per_epoch
        seen = Counter[int]()
        for i in range(windows.steps_per_epoch):
            seen.update(windows.batch(first + i).ravel().tolist())
        assert max(count for token, count in seen.items() if token < 190) <= LIBRARY_REPEATS == 3
        assert {count for token, count in seen.items() if token >= 190} == {1}
        # Only the rest of less than a batch and the two ends are left out.
        assert seen.total() > LIBRARY_REPEATS * 190 + 810 - 17 * (3 + 2)


def test_held_out_windows_predict_every_token_once():
    texts = [np.arange(n, dtype=np.uint16) for n in (1, 2, 16, 17, 18, 40)]
    windows = list(held_out_windows(texts, 16))
    assert all(window.shape[0] == 1 and 2 <= window.shape[1] <= 17 for window in windows)
    predicted = np.concatenate([window[0, 1:] for window in windows])
    assert np.array_equal(predicted, np.concatenate([text[1:] for text in texts]))


class Empty:
    """Windows that hold only the number of the step."""

    def batch(self, step: int) -> np.ndarray:
        return np.array([[step]])


def test_stages_divide_any_number_of_steps_and_each_reads_from_its_beginning():
    for steps in range(1, 60):
        first = round(0.75 * steps)
        expected = [(step, step if step < first else step - first) for step in range(steps)]
        for start in {0, 1, first, steps}:
            batches = stage_batches(lambda stage: Empty(), steps, start)
            assert [(step, tokens.item()) for step, tokens, _ in batches] == expected[start:]


def test_bundled_prompts_are_beginnings_of_held_out_blocks(tokenizer, files):
    more = [SourceFile(f"h{i}.py", make_source(i), True, False) for i in range(100, 120)]
    prompts = cut_bundled_prompts(tokenizer, files + more)
    lengths = [len(tokenizer(prompt["text"])["input_ids"]) for prompt in prompts]
    assert [prompt["tokens"] for prompt in prompts] == lengths
    assert lengths[0] <= 12
    assert 200 < lengths[-1] <= max(lengths) <= 300
    sources = {file.path: file for file in files + more}
    for prompt in prompts:
        file = sources[prompt["source"]]
        assert file.held_out
        assert not file.is_test
        (block,) = (block for block in file.blocks if block.startswith(prompt["text"]))
        assert block.startswith(("def ", "class "))
        assert block[len(prompt["text"])] == "\n"
        assert len(tokenizer(block)["input_ids"]) >= prompt["tokens"] + corpus.LEFT
    assert max(Counter(prompt["source"] for prompt in prompts).values()) <= 2
    assert len({prompt["text"] for prompt in prompts}) == len(prompts) > 20


def test_distillation_prompts_are_proper_beginnings():
    """60 draws of blocks of 5 to 400 tokens. A block's second token identifies it."""
    blocks = {n: np.array([1, n, *range(3, n + 1)], np.uint16) for n in (5, 9, 10, 11, 60, 400)}
    prompts = cut_prompts(list(blocks.values()), 60, np.random.default_rng(0))
    assert len(prompts) == 60
    for prompt in prompts:
        block = blocks[prompt[1]]
        assert prompt == block[: len(prompt)].tolist()
        assert 8 <= len(prompt) <= min(256, len(block) - 1)
    assert len({len(prompt) for prompt in prompts}) > 10


BLOCKS = [np.arange(1, 40, dtype=np.uint16), np.arange(1, 30, dtype=np.uint16)]


def test_continuations_are_kept_chunk_by_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "CHUNK", 2)
    monkeypatch.setattr(corpus, "NEW_TOKENS", 3)

    def written(pair: sv.Pair, count: int, folder: str) -> list[list[int]]:
        (tmp_path / folder).mkdir(exist_ok=True)
        found = continuations(pair, BLOCKS, count, tmp_path / folder)
        return [document.tolist() for document in found]

    pair = sv.Pair(tiny_model(), tiny_model(4))
    whole = written(pair, 5, "whole")
    written(pair, 2, "killed")
    (path,) = tmp_path.glob("killed/continuations-*.jsonl")
    before = path.read_text()
    path.write_text(before + '\n{"half a l')
    assert written(pair, 5, "killed") == whole
    assert path.read_text().startswith(before)
    for document in whole:
        prompt = document[:-3]
        assert prompt == list(range(1, len(prompt) + 1))
        assert sv.generate(pair, [prompt], max_new_tokens=3).tokens == [document[-3:]]
    other = sv.Pair(tiny_model(5), tiny_model(4))
    assert written(other, 5, "killed") == written(other, 5, "other") != whole


def killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.usefixtures("_short_stages")
def test_a_pair_from_sources_to_folders(files, tmp_path, monkeypatch):
    """Run every stage at toy size.

    It is interrupted before the draft's training and resumed. Once complete, it is not run again.
    """
    monkeypatch.setattr(making, "build_target", lambda: tiny_model(1))
    monkeypatch.setattr(making, "build_draft", lambda: tiny_model(2))
    monkeypatch.setattr(corpus, "NEW_TOKENS", 4)
    monkeypatch.setattr(corpus, "COUNT", 4)
    make = partial(making.train_pair, tmp_path, files, steps=(4, 4), documents=3)
    with monkeypatch.context() as patch:
        patch.setattr(making, "distillation_loss", killed)
        with pytest.raises(KeyboardInterrupt):
            make()
    monkeypatch.setattr(making, "next_token_loss", killed)  # the target is complete
    weights = make()
    pair = sv.load_pair(weights / "target", weights / "draft", device="cpu")
    assert pair.target.dtype == torch.float16
    assert pair.eos_token_ids == [pair.tokenizer.eos_token_id] == [2]
    lines = (weights / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line)["text"] for line in lines]
    assert len(sv.generate(pair, prompts, max_new_tokens=4).tokens) == len(prompts) > 0
    card = (weights / "README.md").read_text(encoding="utf-8")
    assert "bits per byte, held-out library" in card
    assert not re.search(r"[{}]", card)
    before = (weights / "draft" / "model.safetensors").read_bytes()
    monkeypatch.setattr(making, "distillation_loss", killed)
    make()
    assert (weights / "draft" / "model.safetensors").read_bytes() == before


def test_the_mix_keeps_its_shares_and_reads_no_window_twice():
    """Each source has ids of its own, and each window is of one source."""
    sizes = {"greedy": (7000, 0), "sampled": (9000, 10_000), "corpus": (2000, 20_000)}
    sources = {}
    for name, (size, first) in sizes.items():
        sources[name] = np.array_split(np.arange(first, first + size), 11)
    mixed, numbers = mix_windows(sources, 50)
    counts = np.bincount(numbers)
    assert counts.tolist() == [80, 40, 40]  # the corpus has 40, a quarter
    assert mixed.shape == (160, 50)
    assert (mixed // 10_000 == numbers[:, None]).all()
    assert len(np.unique(mixed)) == mixed.size
    again, _ = mix_windows(sources, 50)
    assert np.array_equal(again, mixed)
    assert not np.array_equal(mix_windows(sources, 50, seed=1)[0], mixed)
    assert not (np.diff(numbers) >= 0).all()  # shuffled


def test_sampled_continuations_are_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "NEW_TOKENS", 12)
    pair = sv.Pair(tiny_model(1), tiny_model(4))
    sampled = continuations(pair, BLOCKS, 3, tmp_path, sampled=True)
    prompts = cut_prompts(BLOCKS, 3, np.random.default_rng([1, 0]))
    run = {"strategy": "autoregressive", "max_new_tokens": 12, "progress": False}
    drawn = sv.generate(pair, prompts, sampling=sv.SamplingParams(temperature=0.8), **run)
    expected = [prompt + new for prompt, new in zip(prompts, drawn.tokens, strict=True)]
    assert [document.tolist() for document in sampled] == expected
    assert drawn.tokens != sv.generate(pair, prompts, **run).tokens


STEPS, EVERY = 12, 2


@pytest.fixture
def _short_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "STAGES", (Stage(0.75, 2, 16), Stage(0.25, 1, 32)))


def tiny_model(seed: int = 3) -> LlamaForCausalLM:
    return build_model(layers=1, hidden_size=16, heads=2, kv_heads=1, mlp=16, seed=seed)


def train_tiny(folder: Path, stop: int = STEPS) -> tuple[Any, Any, int]:
    """Train a tiny model in `folder`. Return its parameters and history, and the losses computed.

    stop: the number of losses before which the training is killed.
    """
    rng = np.random.default_rng(0)
    texts = [rng.integers(3, 400, 300).astype(np.uint16) for _ in range(4)]
    model = tiny_model()
    computed = 0

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        nonlocal computed
        if computed == stop:
            raise KeyboardInterrupt
        computed += 1
        return next_token_loss(model, tokens)

    def windows(stage: Stage) -> Windows:
        return Windows(texts[:2], texts[2:], stage.rows, stage.length)

    settings = {"progress": False, "checkpoint_every": EVERY}
    job = TrainingJob("tiny", folder, STEPS, torch.device("cpu"), **settings)
    history = train_on(job, model, loss, partial(stage_batches, windows, STEPS))
    facts = [{name: entry[name] for name in ("step", "tokens", "loss")} for entry in history]
    return model.state_dict(), facts, computed


@pytest.mark.usefixtures("_short_stages")
@pytest.mark.parametrize("stops", [[7], [3, 3, 3], [STEPS]])
def test_a_training_that_was_interrupted_ends_like_one_that_was_not(stops, tmp_path):
    (tmp_path / "whole").mkdir()
    parameters, history, _ = train_tiny(tmp_path / "whole")
    assert [entry["step"] for entry in history] == list(range(EVERY, STEPS + 1, EVERY))
    assert history[-1]["tokens"] == 9 * 2 * 16 + 3 * 1 * 32
    for stop in stops:
        with suppress(KeyboardInterrupt):
            train_tiny(tmp_path, stop)
    resumed, told, computed = train_tiny(tmp_path)
    assert computed == STEPS - sum(stop // EVERY * EVERY for stop in stops)
    assert told == history
    torch.testing.assert_close(resumed, parameters, rtol=0, atol=0)


def test_the_learning_rate_warms_up_and_decays_to_zero():
    factors = [learning_rate_factor(step, 1000) for step in range(1001)]
    assert factors[0] == pytest.approx(0.01)
    assert factors[99] == max(factors) == pytest.approx(0.9, abs=0.01)
    assert factors[1000] == 0


def test_every_parameter_has_one_optimiser():
    model = tiny_model()
    of_matrices, of_others = (
        {id(each) for each in optimiser.param_groups[0]["params"]}
        for optimiser in optimisers_for(model)
    )
    assert of_matrices.isdisjoint(of_others)
    assert of_matrices | of_others == {id(each) for each in model.parameters()}
    assert {each.ndim for each in model.parameters() if id(each) in of_matrices} == {2}
    assert id(model.get_input_embeddings().weight) in of_others


def test_the_losses_are_cross_entropy_and_kl_by_hand():
    torch.manual_seed(0)
    draft, target = tiny_model(), tiny_model()
    for parameter in target.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    tokens = torch.tensor([[1, 5, 9, 3], [1, 2, 8, 4]])
    with torch.no_grad():
        q, p = (model(tokens).logits.double().softmax(-1) for model in (draft, target))
        told = q[:, :-1].gather(-1, tokens[:, 1:, None])  # of each token after those before it
        assert float(next_token_loss(draft, tokens)) == pytest.approx(float(-told.log().mean()))
        kl = float((p * (p / q).log()).sum(-1).mean())
        assert kl > 0.001
        assert float(making.distillation_loss(draft, target, tokens)) == pytest.approx(kl, rel=1e-4)
