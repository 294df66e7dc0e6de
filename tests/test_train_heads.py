"""The training of draft heads: features, loss, resuming, measures and files; and those shipped.

The target is tiny and random.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import in_turn
from pair import build_model
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

import specviz as sv
from specviz.engine.heads import KINDS, HeadSettings, build_head
from specviz.engine.heads.base import HeadOutput
from specviz.engine.heads.build import make_head
from specviz.engine.heads.fingerprint import fingerprint
from specviz.engine.heads.layer import at
from specviz.engine.heads.settings import LAST
from specviz.util.validate import quoted_path
from specviz.zoo.heads import features as features_module
from specviz.zoo.heads import training
from specviz.zoo.heads.export import export_head
from specviz.zoo.heads.features import keep_features, target_features
from specviz.zoo.heads.loss import HeadBatch, head_loss
from specviz.zoo.heads.measure import count_rounds, measure_coverage, measure_head, texts_from
from specviz.zoo.heads.training import HeadPlan, TrainedHead, kept_layers, train_head

WEIGHTS = Path(sv.__file__).parent / "zoo" / "weights"


PLAN = HeadPlan(steps=6, rows=2, checkpoint_every=2)


def tiny_target(seed: int = 0) -> LlamaForCausalLM:
    """Return a random target of four layers whose p is far from uniform."""
    target = build_model(layers=4, hidden_size=16, heads=2, kv_heads=1, mlp=16, seed=seed)
    with torch.no_grad():
        target.get_input_embeddings().weight.mul_(40)
    return target.eval()


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return tiny_target()


@pytest.fixture(scope="module")
def windows() -> np.ndarray:
    """Return twelve windows of 24 ids, few of which differ."""
    return np.random.default_rng(0).integers(3, 40, (12, 24))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_target_has_one_fingerprint_in_all_dtypes(dtype: torch.dtype) -> None:
    """The embedded weights are stored as float16, so they are loaded as such first."""
    target = tiny_target().half()
    expected = fingerprint(target.float())
    assert re.fullmatch("[0-9a-f]{64}", expected)
    assert fingerprint(tiny_target().half().to(dtype)) == expected


def test_another_target_has_another_fingerprint(target: LlamaForCausalLM) -> None:
    other = tiny_target()
    assert fingerprint(other) == fingerprint(target)
    with torch.no_grad():
        other.model.layers[2].mlp.up_proj.weight[0, 0] += 1
    assert fingerprint(other) != fingerprint(target)
    assert fingerprint(tiny_target(seed=1)) != fingerprint(target)


def test_features_are_the_targets_and_are_computed_once(
    target: LlamaForCausalLM, windows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features_module, "SHARD_WINDOWS", 5)
    computed = []
    compute = features_module._compute

    def counted(model: object, tokens: np.ndarray, *rest: object) -> torch.Tensor:
        computed.append(len(tokens))
        return compute(model, tokens, *rest)

    monkeypatch.setattr(features_module, "_compute", counted)
    layers = (0, 2, LAST)
    keep = partial(keep_features, target, windows, layers, tmp_path, progress=False)
    kept = keep()
    assert computed == [5, 5, 2]
    numbers = np.array([11, 0, 5])
    tokens, found = kept.batch(numbers, (LAST, 0))
    assert np.array_equal(tokens, windows[numbers])
    head = build_head("eagle3", target, layers=(LAST, 0))
    states = target(tokens, output_hidden_states=True).hidden_states
    torch.testing.assert_close(found, head.select(states), rtol=2e-3, atol=2e-3)  # float16

    keep()
    assert len(computed) == 3
    (tmp_path / "features-1.safetensors").write_bytes(b"half")  # a shard that is damaged
    other = windows.copy()
    other[11, 3] += 1  # a window of the last shard
    keep_features(target, other, layers, tmp_path, progress=False)
    assert computed == [5, 5, 2, 5, 2]
    keep_features(tiny_target(1), other, layers, tmp_path, progress=False)
    keep_features(tiny_target(1), other, (0, LAST), tmp_path, progress=False)
    assert computed[5:] == [5, 5, 2] * 2


def test_features_that_float16_cannot_hold_are_refused(windows: np.ndarray, tmp_path: Path) -> None:
    target = tiny_target()
    with torch.no_grad():
        target.model.norm.weight.mul_(1e6)
    keep = partial(keep_features, target, windows, (LAST,), tmp_path, progress=False)
    with pytest.raises(ValueError, match=r"^dtype=torch.float16 cannot hold the target's features"):
        keep()
    assert list(tmp_path.iterdir()) == []
    kept = keep(dtype=torch.float32)
    assert kept.batch(np.arange(2), (LAST,))[1].abs().max() > 65504


def parameters(head: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in head.state_dict().items()}


def facts(found: TrainedHead) -> list[dict[str, float]]:
    times = ("seconds", "cpu_seconds")
    return [{k: v for k, v in entry.items() if k not in times} for entry in found.history]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_goes_down(
    kind: str, target: LlamaForCausalLM, windows: np.ndarray, tmp_path: Path
) -> None:
    plan = HeadPlan(steps=40, rows=4, starts=0.5, checkpoint_every=10)
    before = {name: weight.clone() for name, weight in target.state_dict().items()}
    found = train_head(kind, target, windows, tmp_path, plan=plan, progress=False)
    losses = [entry["loss"] for entry in found.history]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.15
    assert [entry["tokens"] for entry in found.history] == [960, 1920, 2880, 3840]
    assert found.head.settings.target == fingerprint(target)
    # The target is as it was.
    assert all(torch.equal(weight, before[name]) for name, weight in target.state_dict().items())
    assert all(each.requires_grad and each.grad is None for each in target.parameters())


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("kind", "stops"), [("eagle3", [3]), ("clover", [1, 5]), ("medusa", [2])])
def test_a_training_that_was_killed_ends_like_one_that_was_not(
    kind: str,
    stops: list[int],
    target: LlamaForCausalLM,
    windows: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The texts are measured on the way, which must not change what follows."""
    texts = texts_from(target, [[1, 5, 6]], [[7, 8, 9, 10]], kept_layers(target))
    train = partial(train_head, kind, target, windows, plan=PLAN, texts=texts, progress=False)
    whole = train(folder=tmp_path / "whole")
    compute = training.head_loss
    for stop in stops:
        calls = iter(range(stop))

        def interrupted(*arguments: object, calls: object = calls) -> torch.Tensor:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return compute(*arguments)

        monkeypatch.setattr(training, "head_loss", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(folder=tmp_path / "killed")
        assert all(each.requires_grad for each in target.parameters())
    monkeypatch.setattr(training, "head_loss", compute)
    resumed = train(folder=tmp_path / "killed")
    assert facts(resumed) == facts(whole)
    expected = parameters(whole.head)
    assert parameters(resumed.head).keys() == expected.keys()
    for name, weight in parameters(resumed.head).items():
        assert torch.equal(weight, expected[name]), name


def test_a_training_goes_on_with_its_own_steps_and_head_alone(
    target: LlamaForCausalLM, windows: np.ndarray, tmp_path: Path
) -> None:
    """Its learning rates went by the steps, whether it has finished or not."""
    train = partial(train_head, "medusa", target, windows, tmp_path, progress=False)
    train(plan=PLAN)
    file = tmp_path / "head-medusa.safetensors"
    kept = file.read_bytes()
    for path in tmp_path.glob("features*"):
        path.unlink()
    for steps in (4, 8):
        expected = f"steps must be 6, those of the training in {quoted_path(file)}, got {steps}; "
        with pytest.raises(ValueError, match=f"^{re.escape(expected)}pass 6, or another folder"):
            train(plan=replace(PLAN, steps=steps))
        assert not list(tmp_path.glob("features*")), "the target has read the windows"
    with pytest.raises(
        ValueError, match=r"is the checkpoint of another model: they differ in deeper"
    ):
        train(plan=PLAN, heads=2)
    assert file.read_bytes() == kept
    assert len(train(plan=PLAN).history) == 3


def test_a_training_that_diverges_stops_and_keeps_its_checkpoint(
    target: LlamaForCausalLM,
    windows: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = partial(train_head, "medusa", target, windows, tmp_path, progress=False)
    compute = training.head_loss
    calls = iter(range(2))

    def diverging(*given: object) -> torch.Tensor:
        return compute(*given) * (1 if next(calls, None) is not None else torch.nan)

    monkeypatch.setattr(training, "head_loss", diverging)
    with pytest.raises(ValueError, match=r"^the loss of head-medusa is not finite at step 4: "):
        train(plan=PLAN)
    kept = (tmp_path / "head-medusa.safetensors").read_bytes()
    with pytest.raises(ValueError, match=r"^the loss of head-medusa is not finite at step 4: "):
        train(plan=PLAN)
    assert (tmp_path / "head-medusa.safetensors").read_bytes() == kept
    assert load_file(tmp_path / "head-medusa.safetensors")["model.heads.0.bias"].isfinite().all()
    head = build_head("medusa", target)
    with torch.no_grad():
        head.heads[0].bias.fill_(torch.nan)
    texts = texts_from(target, [[1, 9]], [[0, 4, 0, 7]], kept_layers(target))
    assert measure_head(head, texts)["length"] == 1  # never right


@pytest.mark.parametrize("kind", ["eagle3", "eagle1"])
def test_the_loss_is_least_for_a_head_that_knows_what_the_target_will_say(
    kind: str, target: LlamaForCausalLM, windows: np.ndarray
) -> None:
    """Step s of a chain is compared with the target's p after token start + s.

    Such a head's cross-entropy is the entropy of p, each step with .8 of the weight before.
    """
    head = build_head(kind, target)
    tokens = torch.from_numpy(windows[:2])
    with torch.no_grad():
        output = target(tokens, output_hidden_states=True)
    last = output.hidden_states[-1]
    starts = torch.tensor([[0, 7, 20], [3, 4, 5]])

    def unroll(shift: int) -> Callable[..., list[HeadOutput]]:
        def outputs(_: object, __: object, starts: torch.Tensor, steps: int) -> list[HeadOutput]:
            places = [starts + step + shift for step in range(steps)]
            return [HeadOutput(at(output.logits, p), at(last, p)) for p in places]

        return outputs

    log_p = output.logits.log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    weights = torch.tensor([1, 0.8, 0.64])
    by_step = torch.stack([at(entropy, starts + step).mean() for step in range(3)])
    batch = HeadBatch(tokens, torch.zeros(2, 24, 48), last, starts)
    head.unroll = unroll(0)
    found = head_loss(head, target, 3, batch)
    torch.testing.assert_close(found, (weights * by_step).sum() / weights.sum())
    head.unroll = unroll(1)
    assert head_loss(head, target, 3, batch) > found + 0.1


def test_clovers_block_begins_as_the_targets_last_layer(target: LlamaForCausalLM) -> None:
    head = build_head("clover", target)
    training.start_from_last_layer(head, target)
    last = target.model.layers[-1].state_dict()
    assert last.keys() == head.block.state_dict().keys()
    for name, weight in head.block.state_dict().items():
        assert torch.equal(weight, last[name])
    other = build_head("clover", target, intermediate_size=8)
    before = parameters(other.block)
    training.start_from_last_layer(other, target)
    assert all(
        torch.equal(weight, before[name]) for name, weight in parameters(other.block).items()
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", in_turn(KINDS, every=2))
def test_the_measured_length_is_that_of_drafting_token_by_token(
    kind: str, target: LlamaForCausalLM, tmp_path: Path
) -> None:
    """A plain loop feeds each chain with its own drafts and compares them with the text.

    The head has learned the texts, so that some of its drafts fit.
    """
    prompts = [[1, 5, 6, 9], [1, 30, 8, 7]]
    pair = sv.Pair(target, target)
    new = sv.generate(pair, prompts, max_new_tokens=20, progress=False).tokens
    windows = np.array([prompt + text for prompt, text in zip(prompts, new, strict=True)] * 2)
    plan = HeadPlan(steps=120, rows=4, starts=1.0, checkpoint_every=120)
    head = train_head(kind, target, windows, tmp_path, plan=plan, progress=False).head
    texts = texts_from(target, prompts, new, kept_layers(target))
    rounds = 0
    accepted = 0
    total = sum(map(len, new))
    for prompt, written in zip(prompts, new, strict=True):
        text = [*prompt, *written]
        place = len(prompt) - 1
        while place < len(text) - 1:
            right = drafts_that_fit(head, target, text, place)
            place += right + 1
            accepted += right
            rounds += 1
    figures = measure_head(head, texts)
    assert figures["length"] == total / rounds
    assert accepted > 0
    assert figures["top1_1"] <= figures["top5_1"]


@torch.no_grad()
def drafts_that_fit(
    head: torch.nn.Module, target: LlamaForCausalLM, text: list[int], place: int, K: int = 4
) -> int:
    """Return how many of K drafts after token `place` are the text's, in a row."""
    committed = text[: place + 1]
    drafts: list[int] = []
    for step in range(K):
        tokens = torch.tensor([[*committed, *drafts, *[0] * K]])
        states = target(tokens, output_hidden_states=True).hidden_states
        outputs = head.unroll(tokens, head.select(states), torch.tensor([[place]]), step + 1)
        drafts.append(outputs[step].logits[0, 0].argmax().item())
    right = 0
    for draft, true in zip(drafts, text[place + 1 :], strict=False):
        if draft != true:
            break
        right += 1
    return right


def test_top_1_and_top_5_are_shares_of_the_true_tokens(target: LlamaForCausalLM) -> None:
    """The head gives every entry the same logits, in which id i has rank i."""
    head = build_head("medusa", target)
    logits = -torch.arange(4096.0)

    def unroll(tokens: torch.Tensor, _: object, starts: torch.Tensor, steps: int) -> list[object]:
        shape = (*starts.shape, 4096)
        return [HeadOutput(logits.expand(shape), logits[:0]) for _ in range(steps)]

    head.unroll = unroll
    texts = texts_from(target, [[1, 9]], [[0, 4, 0, 7]], kept_layers(target))
    figures = measure_head(head, texts, 3)
    assert [figures[f"top1_{s}"] for s in (1, 2, 3)] == [2 / 4, 1 / 3, 1 / 2]
    assert [figures[f"top5_{s}"] for s in (1, 2, 3)] == [3 / 4, 2 / 3, 1 / 2]
    assert figures["length"] == 4 / 2  # 0 accepted with 4 as bonus, then 0 with 7


def test_the_coverage_of_a_reduced_vocabulary_bounds_its_acceptance(
    target: LlamaForCausalLM,
) -> None:
    """The head is always right where it can be: its first choice is the text's token, if known."""
    known = torch.tensor([0, 4, 9])
    head = build_head("eagle3", target, draft_vocabulary_size=3)
    head.d2t.copy_(known - torch.arange(3))
    assert torch.equal(head.draft_ids, known)
    new = [[0, 4, 0, 7], [9, 1, 2, 4, 8, 8]]
    texts = texts_from(target, [[1, 9], [3]], new, kept_layers(target))
    assert measure_coverage(head, texts) == 5 / 10  # the prompts' tokens are not drafted
    assert measure_coverage(build_head("eagle3", target), texts) == 1.0

    def unroll(tokens: torch.Tensor, _: object, starts: torch.Tensor, steps: int) -> list[object]:
        outputs = []
        for step in range(steps):
            right = torch.nn.functional.one_hot(at(tokens, starts + step + 1), 4096).float()
            out_of_reach = torch.ones(4096, dtype=torch.bool).index_fill(0, known, False)
            logits = right.masked_fill(out_of_reach, -torch.inf)
            outputs.append(HeadOutput(logits, logits[..., :0]))
        return outputs

    head.unroll = unroll
    figures = measure_head(head, texts, 1)
    assert figures["coverage"] == figures["top1_1"] == 5 / 10


def test_a_stored_head_is_the_head_in_float16(target: LlamaForCausalLM, tmp_path: Path) -> None:
    for kind in KINDS:
        head = build_head(kind, target)
        export_head(head, tmp_path / kind)
        assert {path.name for path in (tmp_path / kind).iterdir()} == {
            "config.json",
            "model.safetensors",
        }
        config = json.loads((tmp_path / kind / "config.json").read_text(encoding="utf-8"))
        assert (config.pop("format"), config.pop("version")) == ("specviz head", 1)
        again = make_head(HeadSettings.from_dict(config))
        stored = load_file(tmp_path / kind / "model.safetensors")
        assert {weight.dtype for weight in stored.values()} == {torch.float16}
        again.load_state_dict(stored)
        assert again.settings == head.settings
        for name, weight in parameters(again).items():
            assert torch.equal(weight, head.state_dict()[name]), name
    head.training_s = 61.234
    export_head(head, tmp_path / "trained")
    text = (tmp_path / "trained" / "config.json").read_text(encoding="utf-8")
    assert json.loads(text)["training_s"] == 61.2


def test_the_shipped_heads_are_of_the_embedded_target() -> None:
    target = sv.load_pair(device="cpu").target
    found = sorted((WEIGHTS / "heads").glob("*/config.json"))
    assert {path.parent.name for path in found} == set(KINDS)
    card = (WEIGHTS / "heads" / "README.md").read_text(encoding="utf-8")
    for path in found:
        config = json.loads(path.read_text(encoding="utf-8"))
        assert (config.pop("format"), config.pop("version")) == ("specviz head", 1)
        minutes = config.pop("training_s") / 60
        settings = HeadSettings.from_dict(config)
        assert settings.kind == path.parent.name
        (row,) = re.findall(rf"^\| {settings.kind} \| (.*)$", card, re.MULTILINE)
        assert row.split(" | ")[4] == f"{minutes:.0f}"
        assert settings.target == fingerprint(target)
        head = make_head(settings)
        head.load_state_dict(load_file(path.parent / "model.safetensors"))


@pytest.mark.slow
def test_the_shipped_heads_reach_what_their_card_says() -> None:
    """Three of the prompts: lengths differ by prompt, so they are held to a part of the figure."""
    pair = sv.load_pair(device="cpu")
    prompts = sv.load_prompts()[::11]
    new = sv.generate(pair, prompts, max_new_tokens=64, progress=False).tokens
    ids = [pair.tokenizer(prompt)["input_ids"] for prompt in prompts]
    texts = texts_from(pair.target, ids, new, kept_layers(pair.target))
    for kind, least in {"medusa": 1.3, "clover": 2.0, "eagle3": 3.5, "parallel": 1.7}.items():
        config = json.loads((WEIGHTS / "heads" / kind / "config.json").read_text(encoding="utf-8"))
        settings = {
            name: config[name] for name in config.keys() - {"format", "version", "training_s"}
        }
        head = make_head(HeadSettings.from_dict(settings))
        head.load_state_dict(load_file(WEIGHTS / "heads" / kind / "model.safetensors"))
        head.attach(pair.target)
        assert measure_head(head.eval(), texts)["length"] > least


def test_rounds_are_counted_as_a_decoder_makes_them() -> None:
    assert count_rounds([0, 0, 0]) == 3
    assert count_rounds([2, 0, 0]) == 1
    assert count_rounds([1, 4, 0, 2, 0, 0]) == 3  # at 0, 2 and 3
    assert count_rounds([]) == 0


def test_target_features_are_those_that_heads_select(target: LlamaForCausalLM) -> None:
    tokens = torch.arange(3, 20)[None]
    states = target(tokens, output_hidden_states=True).hidden_states
    for kind in KINDS:
        head = build_head(kind, target)
        found = target_features(target, tokens, head.settings.layers)
        assert torch.equal(found, head.select(states))
