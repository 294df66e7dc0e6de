"""The training of draft heads: features, loss, resuming, measures and files.

The target is tiny and random.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import in_turn
from pair import build_model
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

import specviz as sv
from specviz.engine.heads import KINDS, build_head
from specviz.engine.heads.files import fingerprint, read_head
from specviz.engine.heads.modules import HeadOutput, at
from specviz.engine.heads.settings import LAST
from specviz.zoo.heads import features as features_module
from specviz.zoo.heads import training, unroll
from specviz.zoo.heads.export import export_head
from specviz.zoo.heads.features import keep_features
from specviz.zoo.heads.loss import HeadBatch, head_loss
from specviz.zoo.heads.measure import count_hits, measure_coverage, measure_head, texts_from
from specviz.zoo.heads.training import HeadPlan, kept_layers, train_head

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
def test_a_target_has_one_fingerprint_in_all_dtypes_and_no_other_target_has_it(dtype):
    """The embedded weights are stored as float16, so they are loaded as such first."""
    target = tiny_target().half()
    expected = fingerprint(target.float())
    target = tiny_target().half().to(dtype)
    assert fingerprint(target) == expected
    with torch.no_grad():
        target.model.layers[2].mlp.up_proj.weight[0, 0] += 1
    assert fingerprint(target) != expected


def test_features_are_the_targets_and_are_computed_once(target, windows, tmp_path, monkeypatch):
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


def test_features_that_float16_cannot_hold_are_refused(windows, tmp_path):
    target = tiny_target()
    with torch.no_grad():
        target.model.norm.weight.mul_(1e6)
    keep = partial(keep_features, target, windows, (LAST,), tmp_path, progress=False)
    with pytest.raises(ValueError, match="float16"):
        keep()
    assert list(tmp_path.iterdir()) == []
    kept = keep(dtype=torch.float32)
    assert kept.batch(np.arange(2), (LAST,))[1].abs().max() > 65504


def assert_equal(found: torch.nn.Module, expected: torch.nn.Module) -> None:
    """Compare the weights bit for bit."""
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=0, atol=0)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_goes_down(kind, target, windows, tmp_path):
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


Loss = Callable[..., torch.Tensor]


def failing_after(calls: int, loss: Loss, instead: Loss) -> Loss:
    """Return a loss that becomes another one after so many calls."""
    numbers = iter(range(calls))
    return lambda *given: (loss if next(numbers, None) is not None else instead)(*given)


def killed(*_: object) -> torch.Tensor:
    raise KeyboardInterrupt


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("kind", "stops"), [("eagle3", [3]), ("clover", [1, 5]), ("medusa", [2])])
def test_a_training_that_was_killed_ends_like_one_that_was_not(
    kind, stops, target, windows, tmp_path, monkeypatch
):
    """The texts are measured on the way, which must not change what follows."""
    texts = texts_from(target, [[1, 5, 6]], [[7, 8, 9, 10]], kept_layers(target))
    train = partial(train_head, kind, target, windows, plan=PLAN, texts=texts, progress=False)
    whole = train(folder=tmp_path / "whole")
    for stop in stops:
        with monkeypatch.context() as patch:
            patch.setattr(training, "head_loss", failing_after(stop, head_loss, killed))
            with pytest.raises(KeyboardInterrupt):
                train(folder=tmp_path / "killed")
        assert all(each.requires_grad for each in target.parameters())
    resumed = train(folder=tmp_path / "killed")
    times = ["seconds", "cpu_seconds"]
    found, expected = (pd.DataFrame(each.history).drop(columns=times) for each in (resumed, whole))
    assert found.equals(expected)
    assert_equal(resumed.head, whole.head)


def test_a_training_goes_on_with_its_own_steps_and_head_alone(target, windows, tmp_path):
    """Its learning rates went by the steps, whether it has finished or not."""
    train = partial(train_head, "medusa", target, windows, tmp_path, progress=False)
    train(plan=PLAN)
    kept = (tmp_path / "head-medusa.safetensors").read_bytes()
    for path in tmp_path.glob("features*"):
        path.unlink()
    for steps in (4, 8):
        with pytest.raises(ValueError, match=rf"^steps must be 6, .* got {steps}; pass 6, "):
            train(plan=replace(PLAN, steps=steps))
        assert not list(tmp_path.glob("features*")), "the target has read the windows"
    with pytest.raises(ValueError, match="is the checkpoint of another model"):
        train(plan=PLAN, heads=2)
    assert (tmp_path / "head-medusa.safetensors").read_bytes() == kept
    assert len(train(plan=PLAN).history) == 3


def test_a_training_that_diverges_stops_and_keeps_its_checkpoint(
    target, windows, tmp_path, monkeypatch
):
    diverging = failing_after(2, head_loss, lambda *given: head_loss(*given) * torch.nan)
    monkeypatch.setattr(training, "head_loss", diverging)
    kept = []
    for _ in range(2):
        with pytest.raises(ValueError, match="not finite at step 4: "):
            train_head("medusa", target, windows, tmp_path, plan=PLAN, progress=False)
        kept.append(load_file(tmp_path / "head-medusa.safetensors")["model.heads.0.bias"])
    assert kept[0].isfinite().all()
    assert torch.equal(kept[0], kept[1])


def test_the_loss_is_least_for_a_head_that_knows_what_the_target_will_say(
    target, windows, monkeypatch
):
    """Step s of a chain is compared with the target's p after token start + s.

    Such a head's cross-entropy is the entropy of p, each step with .8 of the weight before.
    """
    head = build_head("eagle3", target)
    tokens = torch.from_numpy(windows[:2])
    with torch.no_grad():
        output = target(tokens, output_hidden_states=True)
    last = output.hidden_states[-1]
    starts = torch.tensor([[0, 7, 20], [3, 4, 5]])

    def outputs(shift: int, *given: Any) -> list[HeadOutput]:
        starts, steps = given[-2:]
        places = [starts + step + shift for step in range(steps)]
        return [HeadOutput(at(output.logits, p), at(last, p)) for p in places]

    log_p = output.logits.log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    weights = torch.tensor([1, 0.8, 0.64])
    by_step = torch.stack([at(entropy, starts + step).mean() for step in range(3)])
    batch = HeadBatch(tokens, torch.zeros(2, 24, 48), last, starts)
    monkeypatch.setattr("specviz.zoo.heads.loss.unroll", partial(outputs, 0))
    found = head_loss(head, target, 3, batch)
    torch.testing.assert_close(found, (weights * by_step).sum() / weights.sum())
    monkeypatch.setattr("specviz.zoo.heads.loss.unroll", partial(outputs, 1))
    assert head_loss(head, target, 3, batch) > found + 0.1


def test_clovers_block_begins_as_the_targets_last_layer(target):
    head = build_head("clover", target)
    training.start_from_last_layer(head, target)
    assert_equal(head.block, target.model.layers[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", in_turn(KINDS, every=2))
def test_the_measured_length_is_that_of_drafting_token_by_token(kind, target, tmp_path):
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
    for step in range(K):
        after = place + 1 + step  # all drafts before are the text's
        tokens = torch.tensor([[*text[:after], *[0] * K]])
        states = target(tokens, output_hidden_states=True).hidden_states
        outputs = unroll(head, tokens, head.select(states), torch.tensor([[place]]), step + 1)
        if text[after : after + 1] != [outputs[step].logits[0, 0].argmax().item()]:
            return step
    return K


def test_hits_are_those_of_a_plain_count(target, monkeypatch):
    """The head's first choice is always 0, and its second 1."""
    head = build_head("medusa", target)
    logits = -torch.arange(4096.0)

    def outputs(*given: Any) -> list[HeadOutput]:
        starts, steps = given[-2:]
        return [HeadOutput(logits.expand(*starts.shape, 4096), logits[:0]) for _ in range(steps)]

    monkeypatch.setattr("specviz.zoo.heads.measure.unroll", outputs)
    texts = texts_from(target, [[1, 9], [5]], [[0, 0, 4, 0, 9], [0]], kept_layers(target))
    found = count_hits(head, texts, 3, 2)
    assert found.tokens.tolist() == [5, 1]
    assert found.positions.tolist() == [[5, 4, 3], [1, 0, 0]]
    assert found.top1.tolist() == [[3, 2, 1], [1, 0, 0]]
    assert found.top5.tolist() == [[4, 3, 2], [1, 0, 0]]
    # At 0 both are right and the third is not; at 1 the first; at 3 the first.
    assert found.accepted.tolist() == [[3, 1, 0], [1, 0, 0]]
    assert found.reached.tolist() == [[5, 3, 1], [1, 0, 0]]
    # 0 0 and 4 as bonus, then 0 and 9 as bonus; the other text is one round.
    assert found.rounds.tolist() == [2, 1]
    assert count_hits(head, texts, 3, 1).rounds.tolist() == [3, 1]
    figures = measure_head(head, texts, 2)
    assert figures["length"] == 6 / 3
    assert (figures["top1_1"], figures["top1_2"]) == (4 / 6, 2 / 4)
    assert (figures["top5_1"], figures["top5_2"]) == (5 / 6, 3 / 4)


def test_the_coverage_of_a_reduced_vocabulary_is_the_share_of_texts_that_it_has(target):
    head = build_head("eagle3", target, draft_vocabulary_size=3)
    head.d2t.copy_(torch.tensor([0, 4, 9]) - torch.arange(3))
    new = [[0, 4, 0, 7], [9, 1, 2, 4, 8, 8]]
    texts = texts_from(target, [[1, 9], [3]], new, kept_layers(target))
    assert measure_coverage(head, texts) == 5 / 10  # the prompts' tokens are not drafted
    assert measure_head(head, texts, 1)["coverage"] == 5 / 10
    assert measure_coverage(build_head("eagle3", target), texts) == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_head_is_the_head_in_float16(kind, target, tmp_path):
    head = build_head(kind, target)
    head.training_s = 61.234
    export_head(head, tmp_path / kind)
    stored = load_file(tmp_path / kind / "model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.float16}
    again = read_head(tmp_path / kind, target)
    assert again.training_s == 61.2
    assert again.settings == head.settings
    assert_equal(again, head)
