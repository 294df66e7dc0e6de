"""Compare the loop with thirty lines of plain Python, for any acceptance pattern.

The model is scripted, and its K/V can be read.
"""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

import specviz as sv
from specviz.engine.events import Event

VOCABULARY, EOS = 23, 4


class ScriptedConfig(PreTrainedConfig):
    model_type = "scripted"

    def __init__(self, misses: tuple[int, ...] = (), **kwargs: object):
        super().__init__(
            vocab_size=VOCABULARY,
            num_hidden_layers=1,
            max_position_embeddings=4096,
            eos_token_id=EOS,
            **kwargs,
        )
        self.misses = misses


class Scripted(PreTrainedModel):
    """A model whose K/V of a token are (token, position).

    Its next token depends on exactly the (token, position) that it attends to. At positions in
    `misses` it predicts another token: that is where the draft disagrees.
    """

    config_class = ScriptedConfig
    _supports_sdpa = True

    def __init__(self, config: ScriptedConfig):
        super().__init__(config)
        self.head = nn.Linear(1, VOCABULARY)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def get_input_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, input_ids, position_ids, attention_mask, past_key_values, use_cache=True):  # type: ignore[no-untyped-def]
        states = torch.stack([input_ids, position_ids], -1)[:, None].double()  # (b, 1 head, q, 2)
        keys, _ = past_key_values.update(states, states, 0)
        weights = (keys[..., 0] + 1) * (7 * keys[..., 1] ** 2 + 13 * keys[..., 1] + 1)  # (b, 1, w)
        choice = (weights[:, :, None] * attention_mask).sum(-1)[:, 0].long() % VOCABULARY  # (b, q)
        missed = torch.isin(position_ids, torch.tensor(self.config.misses, dtype=torch.long))
        choice = torch.where(missed, (choice + 1) % VOCABULARY, choice)
        return CausalLMOutputWithPast(logits=nn.functional.one_hot(choice, VOCABULARY).float())


def next_token(tokens: list[int], misses: tuple[int, ...] = ()) -> int:
    weight = sum((token + 1) * (7 * i**2 + 13 * i + 1) for i, token in enumerate(tokens))
    if len(tokens) - 1 in misses:
        weight += 1
    return weight % VOCABULARY


def reference(
    prompt: list[int], budget: int, k: int, misses: tuple[int, ...]
) -> tuple[list[int], list[int], list[int]]:
    """Draft, verify and accept for one row in plain Python.

    Returns its output, and accepted and gained tokens of each round.
    """
    tokens = list(prompt)
    accepted = []
    gained = []
    while len(tokens) < len(prompt) + budget and (len(tokens) == len(prompt) or tokens[-1] != EOS):
        drafts = []
        for _ in range(k):
            drafts.append(next_token(tokens + drafts, misses))
        wanted = [next_token(tokens + drafts[:j]) for j in range(k + 1)]
        a = next((j for j in range(k) if drafts[j] != wanted[j]), k)
        new = [*drafts[:a], wanted[a]]
        if EOS in new:
            new = new[: new.index(EOS) + 1]
        new = new[: len(prompt) + budget - len(tokens)]
        tokens += new
        accepted.append(a)
        gained.append(len(new))
    return tokens[len(prompt) :], accepted, gained


@pytest.fixture(scope="module", autouse=True)
def no_trial() -> Iterator[None]:
    """Decode without a trial of the models: a scripted one cannot run without a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specviz.engine.run.check_exact", lambda role, model: None)
        yield


def check_state(event: Event):
    """Check each row's n, start and K/V.

    The token with index p must lie at the layout's slot for p, computed at position p.
    """
    state = event.state
    rows = [row for row in state.batch.rows if not row.finished]
    if event.phase != "synchronise" or len(rows) < len(state.batch):
        return
    assert state.batch.n.tolist() == [row.length for row in rows]
    assert state.batch.lengths.tolist()[: len(state.batch.live)] == [
        row.length for row in state.batch.live
    ]
    assert state.layout.start.tolist()[: len(rows)] == state.layout.starts[: len(rows)]
    # The pending token has no K/V yet, nor has the last draft after a full acceptance.
    for name, missing in (("target", 1), ("draft", 2)):
        keys = state.caches[name].cache.layers[0].keys
        for i, row in enumerate(rows):
            tokens = [*row.request.prompt, *row.output]
            known = max(len(tokens) - missing, 0)
            slots = state.layout.slots(torch.tensor([i]), torch.arange(known)[None])[0]
            held = keys[i, slots, 0].long().tolist()
            assert held == [[token, p] for p, token in enumerate(tokens[:known])]


PROMPTS = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9), min_size=1, max_size=7
)
STRATEGIES = st.one_of(
    st.builds(
        sv.strategy,
        st.sampled_from(["eqspec", "inplace", "masking", "rollback"]),
        refill=st.booleans(),
    ),
    st.builds(
        sv.strategy,
        st.just("repadding"),
        skip_unpadding=st.booleans(),
        ones_mask=st.just(False),
        draft_bonus=st.just(False),
    ),
    st.builds(
        sv.strategy,
        st.just("exspec"),
        window=st.integers(4, 7),
        fallback=st.sampled_from(["realign", "partial", "wait"]),
        max_wait=st.integers(1, 3),
        sort_prompts=st.booleans(),
    ),
)


@pytest.mark.slow
@given(PROMPTS, st.data(), STRATEGIES, st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_the_loop_is_the_reference(prompts, data, strategy, k, batch_size):
    misses = tuple(
        data.draw(st.lists(st.integers(0, 30), max_size=31, unique=True), label="misses")
    )
    budgets = data.draw(
        st.lists(st.integers(1, 20), min_size=len(prompts), max_size=len(prompts)), label="budgets"
    )
    pair = sv.Pair(Scripted(ScriptedConfig()), Scripted(ScriptedConfig(misses)))
    seen = {}
    for event in sv.decode(
        pair,
        prompts,
        strategy=strategy,
        num_draft_tokens=k,
        batch_size=batch_size,
        max_new_tokens=budgets,
    ):
        check_state(event)
        for row in event.state.batch.rows if event.phase == "accept" else []:
            output, accepted, gained = seen.setdefault(row.request.index, ([], [], []))
            if row.gained:
                accepted.append(row.accepted)
                gained.append(row.gained)
                output[:] = row.output
    for i, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
        expected = reference(prompt, budget, k, misses)
        if strategy.name == "rollback":  # it keeps fewer tokens a round
            assert seen[i][0] == expected[0]
        else:
            assert seen[i] == expected


@pytest.mark.parametrize("break_it", ["start", "index"])
def test_the_check_sees_a_broken_layout(break_it, monkeypatch):
    """A negative control: K/V at the wrong slot, or at the wrong position, does not pass."""
    from specviz.engine.kv.layout import Layout

    wrong = {
        "start": ("slots", lambda self, rows, indices: self.start[rows, None] + (indices + 1)),
        "index": ("positions", lambda self, rows, indices: indices + (indices > 5).long()),
    }
    monkeypatch.setattr(Layout, *wrong[break_it])
    pair = sv.Pair(Scripted(ScriptedConfig()), Scripted(ScriptedConfig((8, 11))))
    events = sv.decode(pair, [[1, 2, 3], [5, 6, 7, 8]], strategy="eqspec", max_new_tokens=12)
    with pytest.raises(AssertionError):
        any(check_state(event) for event in events)
