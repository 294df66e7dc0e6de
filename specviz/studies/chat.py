"""Conversations under memory budgets: `specviz study chat`.

Several conversations go on for a few turns. With K/V kept between turns, a turn reads the new
message alone. Without it, a turn reads the whole conversation again. A budget decides how many
conversations keep theirs.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from specviz.costs.memory import peak_of
from specviz.engine.models.pair import Pair
from specviz.engine.options import Options
from specviz.engine.requests import Prompt, encode
from specviz.engine.run import check_pair
from specviz.generation.chat import KEEP, Chat, chat
from specviz.generation.plan import make_search
from specviz.generation.plan_search import Candidate, least_bytes, weight_bytes
from specviz.studies.memory import MAX_PERCENT, MAX_REPETITIONS
from specviz.util.files import conditions
from specviz.util.validate import is_list, require_bool, require_int, require_ints, short

MAX_TURNS = 100
MAX_CONVERSATIONS = 1000


@dataclass(frozen=True)
class _Cell:
    """A way to keep K/V. `percent` and `budget_bytes` are None without a budget."""

    keep: str
    percent: int | None = None
    budget_bytes: int | None = None


def compare_chats(
    pair: Pair,
    messages: Sequence[Prompt],
    percents: Sequence[int] = (100, 80, 60, 40),
    *,
    conversations: int = 4,
    batch_size: int = 2,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 32,
    repetitions: int = 3,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Measure what the turns of conversations read again, and how long they take.

    Args:
        messages: what is said, one for each conversation in each turn: in the first turn the first
            ones, and so on. A rest that does not suffice for a turn is left out.
        percents: budgets for kept K/V, each as a share of what a turn takes (all but weights) and
            what all conversations keep, where both are unlimited.
        conversations: how many go on side by side.
        repetitions: of all conversations, whose turns are interleaved.

    Returns:
        (table, conditions). The first entries keep all K/V, that of the prompts, and none, without
        a budget. The others keep what fits. Each has keep, percent of its budget, budget_mb,
        kept_mb (the most K/V between two turns), read_tokens and restored_tokens (of the target, in
        all turns but the first), dropped (conversations that lost their K/V), first_turn_s, turn_s
        (a later turn, on average; the median over repetitions, with low and high) and same_text.
        Where a turn has no plan, all that is measured is missing.

    Raises:
        ValueError: an argument cannot be used; nothing has run.
    """
    check_pair(pair)
    require_ints("percents", percents, maximum=MAX_PERCENT)
    require_int("conversations", conversations, maximum=MAX_CONVERSATIONS)
    require_int("repetitions", repetitions, maximum=MAX_REPETITIONS)
    require_bool("progress", progress)
    run = {
        "batch_size": require_int("batch_size", batch_size),
        "num_draft_tokens": require_int("num_draft_tokens", num_draft_tokens),
        "max_new_tokens": require_int("max_new_tokens", max_new_tokens),
    }
    said = _turns_of(pair, messages, conversations)
    cells = [_Cell(keep) for keep in KEEP]
    first = _talk(pair, cells, said, run)
    need, least, weights = _needs(pair, first[0], said, run)
    budgets = [(percent, weights + need * percent // 100) for percent in percents]
    cells += [_Cell("all", percent, size) for percent, size in budgets if size >= least]
    missing = [_Cell("all", percent, size) for percent, size in budgets if size < least]
    # What has run so far has warmed up all that the repetitions use.
    steps = tqdm(range(repetitions), unit="repetition", disable=not progress)
    rounds = [_talk(pair, cells, said, run) for _ in steps]
    entries = [
        _entry(cell, talks, first[0])
        for cell, talks in zip(cells, zip(*rounds, strict=True), strict=True)
    ]
    entries += [_given(cell) for cell in missing]
    assert first[0].result is not None
    given = run | {"conversations": conversations, "turns": len(said), "repetitions": repetitions}
    return pd.DataFrame(entries), conditions(first[0].result.meta, **given)


def _turns_of(
    pair: Pair, messages: Sequence[Prompt], conversations: int
) -> list[dict[str, list[int]]]:
    """Return what each conversation hears, turn by turn."""
    if not is_list(messages):
        raise ValueError(
            f"messages must be a list of texts or token ids, got {short(messages)}; "
            "pass for instance ['def add(a, b):', 'class Stack:']"
        )
    turns = min(len(messages) // conversations, MAX_TURNS)
    if turns < 2:
        raise ValueError(
            f"messages must be enough for two turns of {conversations} conversations, got "
            f"{len(messages)} in {short(messages)}; pass {2 * conversations} or more, or fewer "
            "conversations"
        )
    said = []
    for turn in range(turns):
        part = messages[turn * conversations : (turn + 1) * conversations]
        said.append(
            {
                f"{place}": encode(pair, f"messages[{place}]", message, begins=turn == 0)
                for place, message in enumerate(part)
            }
        )
    return said


def _talk(
    pair: Pair, cells: Sequence[_Cell], said: Sequence[dict[str, list[int]]], run: dict[str, Any]
) -> list[Chat]:
    """Hold all conversations in each of the ways; their turns are interleaved."""
    talks = [chat(pair, keep=cell.keep, memory_budget=cell.budget_bytes, **run) for cell in cells]
    for messages in said:
        for talk in talks:
            talk.say(messages)
    return talks


def _needs(
    pair: Pair, talk: Chat, said: Sequence[dict[str, list[int]]], run: dict[str, Any]
) -> tuple[int, int, int]:
    """Return the bytes beside the weights that are enough, the least budget, and the weights.

    talk: the same conversations, without a budget.
    """
    # A longer conversation needs more, so the last turn does.
    longest = [talk.tokens(name) for name in said[-1]]
    search = make_search(pair, longest, Options.from_keywords(run))
    whole = Candidate(search.batch_size, search.num_draft_tokens, search.levers, True)
    parts = search.parts(whole)
    weights = weight_bytes(parts)
    kept = int(talk.turns["kept_bytes"].max())
    return peak_of(parts) - weights + kept, least_bytes(search), weights


def _given(cell: _Cell) -> dict[str, Any]:
    budget = None if cell.budget_bytes is None else cell.budget_bytes / 1e6
    return {"keep": cell.keep, "percent": cell.percent, "budget_mb": budget}


def _entry(cell: _Cell, talks: Sequence[Chat], first: Chat) -> dict[str, Any]:
    turns = talks[0].turns
    later = [talk.turns["seconds"][1:].mean() for talk in talks]
    names = [f"{place}" for place in range(int(turns["conversations"][0]))]
    return _given(cell) | {
        "kept_mb": turns["kept_bytes"].max() / 1e6,
        "read_tokens": int(turns["read_tokens"][1:].sum()),
        "restored_tokens": int(turns["restored_tokens"][1:].sum()),
        "dropped": int(turns["dropped"].sum()),
        "first_turn_s": statistics.median(talk.turns["seconds"][0] for talk in talks),
        "turn_s": statistics.median(later),
        "low": min(later),
        "high": max(later),
        "same_text": all(
            talk.tokens(name) == first.tokens(name) for talk in talks for name in names
        ),
    }
