"""Conversations in turns: the text of decoding each turn from scratch, within one budget."""

from typing import Any

import pytest
import torch
from conftest import check_refusal, generate, make_pair
from test_memory import make_pair as make_large_pair
from test_memory import with_head
from test_numbers import VALID

import specviz as sv
from specviz.engine.store import Kept, KVStore

K = 4
RUN: dict[str, Any] = {"batch_size": 3, "num_draft_tokens": K, "max_new_tokens": 9}
NAMES = ("ann", "ben", "cem", "dag", "eve")


def messages(turn: int) -> dict[str, list[int]]:
    """What is said in a turn: other conversations every time, messages of 1 to 12 tokens."""
    generator = torch.Generator().manual_seed(turn)
    said = {}
    for i, name in enumerate(NAMES):
        if (i + turn) % 3:
            count = 1 + (7 * i + 5 * turn) % 12
            said[name] = torch.randint(0, 97, (count,), generator=generator).tolist()
    return said


def check_turns(pair: sv.Pair, talk: sv.Chat, turns: int, **run: Any) -> None:
    """Each turn writes what a run over the whole conversations writes."""
    histories: dict[str, list[int]] = {}
    for turn in range(turns):
        said = messages(turn)
        prompts = [histories.get(name, []) + said[name] for name in said]
        expected = generate(pair, prompts, **RUN | run)
        talk.say(said)
        assert talk.result.tokens == expected.tokens
        for name, prompt, reply in zip(said, prompts, expected.tokens, strict=True):
            ended = reply[-1] in pair.eos_token_ids
            histories[name] = prompt + (reply[:-1] if ended else reply)
            assert talk.tokens(name) == histories[name]


@pytest.mark.sweep(20)
@pytest.mark.parametrize("keep", ["all", "prompt", "none"])
@pytest.mark.parametrize("strategy", VALID)
def test_the_text_is_that_of_every_turn_from_scratch(keep: str, strategy: str) -> None:
    pair = make_pair("llama")
    talk = sv.chat(pair, keep=keep, strategy=strategy, **RUN)
    check_turns(pair, talk, 4, strategy=strategy)
    assert (talk.turns["restored_tokens"].sum() > 0) == (keep != "none")


@pytest.mark.sweep(12)
@pytest.mark.parametrize(
    "options",
    [
        {"drafter": "lookup"},
        {"levers": sv.Levers(keep_draft=False)},
        {"drafter": sv.drafter("tree", depth=3, width=2)},
        {"drafter": "static_tree", "strategy": "masking", "num_draft_tokens": 4},
        {"strategy": "autoregressive"},
        {"strategy": sv.strategy("eqspec", refill=False)},
        {"deterministic": True},
        {"sampling": sv.SamplingParams(0.8, coupling="gumbel")},
        {"levers": sv.Levers(prefill_tokens=7)},
    ],
    ids=str,
)
def test_other_options(options: dict[str, Any]) -> None:
    pair = make_pair("llama")
    check_turns(pair, sv.chat(pair, **RUN | options), 3, **options)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", ["model", "eagle3", "clover"])
def test_drafts_are_accepted_as_from_scratch(kind: str) -> None:
    """The draft model's K/V is kept, too, and a head finds its features."""
    pair = make_pair("llama")
    pair = pair if kind == "model" else with_head(pair, kind)
    talk = sv.chat(pair, drafter=kind, **RUN)
    check_turns(pair, talk, 2, drafter=kind)
    said = messages(2)
    known = messages(0) | messages(1)
    prompts = [(talk.tokens(name) if name in known else []) + said[name] for name in said]
    talk.say(said)
    expected = generate(pair, prompts, drafter=kind, **RUN)
    assert talk.result.rows["accepted"].sum() == expected.rows["accepted"].sum()


def test_what_is_kept_is_not_read_again() -> None:
    """All but the token that had no K/V, and the prompt alone where only that is kept."""
    pair = make_pair("llama")
    chats = {keep: sv.chat(pair, keep=keep, **RUN) for keep in ("all", "prompt", "none")}
    for talk in chats.values():
        talk.say({"ann": [3, 8, 11, 60]})
    reply = len(chats["all"].tokens("ann")) - 4
    written = len(chats["all"].result.tokens[0])  # with its EOS, which has no K/V either
    for talk in chats.values():
        talk.say({"ann": [7, 8]})
    read = {keep: int(talk.turns["read_tokens"][1]) for keep, talk in chats.items()}
    kept = {keep: int(talk.turns["restored_tokens"][1]) for keep, talk in chats.items()}
    assert kept == {"all": written + 3, "prompt": 4, "none": 0}
    assert read == {keep: reply + 5 - count for keep, count in kept.items()}


def test_a_turn_and_what_is_kept_stay_within_the_budget() -> None:
    """Measured on every tensor, while conversations come, go on, and lose their K/V."""
    pair = make_large_pair()
    weights = sum(p.nbytes for model in (pair.target, pair.draft) for p in model.parameters())
    generate(pair, [[1, 2]], max_new_tokens=1)  # the trial of the models comes before
    prompts = {name: [(7 * i + j) % 900 for j in range(60)] for i, name in enumerate(NAMES)}
    run = {"batch_size": 2, "num_draft_tokens": 3, "max_new_tokens": 8, "num_threads": 1}
    largest = [prompt * 3 for prompt in prompts.values()]
    budget = int(1.06 * sv.plan("1GB", pair, largest, **run).least_bytes)
    talk = sv.chat(pair, memory_budget=budget, **run)
    with sv.PeakMeter([pair.target, pair.draft]) as meter:
        for turn in range(3):
            said = {name: prompts[name] for name in NAMES if turn != 1 or name != "eve"}
            talk.say(said)
            talk.say({"eve": [5, 6, 7]})
    assert weights + meter.peak_bytes <= budget
    assert talk.turns["dropped"].sum() > 0
    assert talk.turns["restored_tokens"].sum() > 0
    assert talk.turns["kept_bytes"].max() <= budget - weights


@pytest.mark.slow
def test_more_memory_means_less_to_read_again() -> None:
    """With one row. A turn that may have more rows takes the memory for them first."""
    pair = make_pair("llama")
    run = RUN | {"batch_size": 1}
    least = sv.plan("1GB", pair, [[1] * 40] * 4, **run).least_bytes
    read = []
    for budget in (least, int(1.1 * least), 10 * least):
        talk = sv.chat(pair, memory_budget=budget, **run)
        for turn in range(4):
            talk.say(messages(turn))
        read.append(int(talk.turns["read_tokens"].sum()))
    assert read == sorted(read, reverse=True)
    assert read[0] > 1.5 * read[-1]


def test_conversations_end_and_begin() -> None:
    pair = make_pair("llama")
    talk = sv.chat(pair, **RUN)
    talk.say({"ann": [3, 8], "ben": [4]})
    assert repr(talk) == "<Chat: 2 conversations, 2 with K/V kept>"
    talk.forget("ann")
    assert repr(talk) == "<Chat: 1 conversations, 1 with K/V kept>"
    talk.say({"ann": [9]})
    before = talk.tokens("ann")
    assert before[0] == 9
    assert talk.turns["restored_tokens"][1] == 0
    # A turn that fails changes nothing.
    check_refusal(lambda: talk.say({"ann": [97]}), "messages['ann'][0] must be a token id from 0")
    assert (talk.tokens("ann"), len(talk.turns)) == (before, 2)


def test_text_with_the_embedded_pair() -> None:
    pair = sv.load_pair(device="cpu")
    talk = sv.chat(pair, max_new_tokens=16)
    first = talk.say({"a": "def add(a, b):\n"})["a"]
    second = talk.say({"a": "\n\ndef subtract(a, b):\n"})["a"]
    assert talk.text("a").startswith("def add(a, b):\n" + first)
    assert talk.text("a").endswith(second)
    whole = talk.tokens("a")
    alone = generate(pair, [whole[: -len(talk.result.tokens[0])]], max_new_tokens=16)
    assert alone.tokens == talk.result.tokens


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda pair: sv.chat(pair, keep="some"), "keep='some' is unknown"),
        (lambda pair: sv.chat(pair, memory_budget="much"), "memory_budget must be a size"),
        (lambda pair: sv.chat(pair).say([[1]]), "messages must be a"),
        (lambda pair: sv.chat(pair).say({}), "messages={} is empty"),
        (lambda pair: sv.chat(pair).say({"a": "text"}), "messages['a'] is text"),
        (lambda pair: sv.chat(pair).say({1: [1]}), "messages"),
        (lambda pair: sv.chat(pair).tokens("ann"), "name must be that of a conversation"),
        (lambda pair: sv.chat(pair).forget(3), "name must be a str"),
        (lambda pair: sv.chat(pair, memory_budget="1kB").say({"a": [1]}), "memory_budget must be"),
    ],
)
def test_what_cannot_be_said_is_refused(call: Any, message: str) -> None:
    check_refusal(lambda: call(make_pair("llama")), message)


def test_what_a_run_has_yet_to_read_is_not_dropped_for_what_it_wrote() -> None:
    """Ten bytes an entry, room for three: by the last use alone, each would go just before."""
    entry = Kept((1,), {}, None, nbytes=10)
    store = KVStore()
    store.begin("abcd", limit_bytes=30)
    for request in range(3):
        assert store.make_room(10)
        store.put(request, entry)
    store.begin("abcd", limit_bytes=30)
    assert not store.make_room(10)  # nothing of what waits is given up
    assert store.take(3) is None
    for request in range(3):
        assert store.take(request) == entry
        assert store.make_room(10)
        store.put(request, entry)
    assert len(store) == 3
    assert store.dropped == 0
    store.begin("d", limit_bytes=30)  # "a" to "c" do not speak
    assert store.make_room(10)
    assert len(store) == 2
    store.begin("bc", limit_bytes=15)  # a smaller limit, for every chat
    assert len(store) == 1
