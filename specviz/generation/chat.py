"""`chat`: conversations that go on, with their K/V kept between turns under one memory budget.

A turn is a run like any other. What is kept changes how many tokens are read again, never the text.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import pandas as pd

from specviz.engine.models.pair import Pair
from specviz.engine.options import Options
from specviz.engine.requests import Prompt, encode
from specviz.engine.run import check_pair, make_run
from specviz.engine.store import KVStore
from specviz.generation.assemble import decode_texts, make_result
from specviz.generation.collect import collect
from specviz.generation.memory import check_memory, parse_bytes, plan_run
from specviz.generation.result import Result
from specviz.util.validate import require_choice, require_mapping, require_str, short

KEEP = ("all", "prompt", "none")


def chat(
    pair: Pair, *, keep: str = "all", memory_budget: int | str | None = None, **options: Any
) -> "Chat":
    """Return a chat with the target, in which many conversations go on side by side.

        talk = sv.chat(pair, memory_budget="60MB", max_new_tokens=48)
        talk.say({"ann": "def add(a, b):", "ben": "class Stack:"})
        talk.say({"ann": "\\n\\ndef subtract(a, b):"})
        print(talk.text("ann"), talk.turns)

    Args:
        keep: what is kept of a conversation between turns: "all" its K/V and last states, K/V of
            its "prompt" up to the reply alone, or "none".
        memory_budget: as in `generate`. It holds for a turn and for all that is kept, so what a
            turn leaves is there for the K/V of conversations. Where they do not fit, those that
            spoke longest ago lose theirs, and are read again when they go on; one that is about to
            speak keeps its K/V until then. None: without limit.
        options: those of `decode`.

    Raises:
        TypeError: an option is unknown.
        ValueError: an argument cannot be used.
    """
    check_pair(pair)
    require_choice("keep", keep, KEEP)
    if memory_budget is not None:
        parse_bytes("memory_budget", memory_budget)
    made = Options.of_one_lane(options, "in a chat, which keeps the K/V of one lane")
    return Chat(pair, keep, memory_budget, made)


class Chat:
    """What `chat` returns.

    Attributes:
        result: of the last turn, None before it.
        turns: a table with one entry a turn: conversations, new_tokens, restored_tokens and
            read_tokens (of the conversations that spoke, how many tokens had K/V and how many the
            target read), kept (conversations with K/V after it), kept_bytes, dropped
            (conversations that lost their K/V in it), seconds.
    """

    def __init__(
        self, pair: Pair, keep: str, memory_budget: int | str | None, options: Options
    ) -> None:
        self.pair = pair
        self.result: Result | None = None
        self._budget = memory_budget
        self._options = options
        self._store = KVStore(keep)
        self._histories: dict[str, list[int]] = {}
        self._turns: list[dict[str, float]] = []

    def say(self, messages: Mapping[str, Prompt]) -> dict[str, str]:
        """Continue conversations, each with its message, and return the replies by their names.

        A message is appended to its conversation as it is: text, or token ids. A new name begins a
        conversation. The reply follows the message; an EOS at its end is left out of the
        conversation.

        Raises:
            ValueError: a message cannot be used, or the budget is too small for the turn; the
                conversations are as before.
        """
        require_mapping("messages", messages, "pass for instance {'ann': 'def add(a, b):'}")
        if not messages:
            raise ValueError("messages={} is empty; pass at least one message by its name")
        begin = time.perf_counter()
        prompts = {}
        for name, message in messages.items():
            history = self._histories.get(require_str("messages", name, "name them by texts"), [])
            told = encode(self.pair, f"messages[{name!r}]", message, begins=not history)
            prompts[name] = history + told
        result = self._run(prompts)
        for name, reply in zip(prompts, result.tokens, strict=True):
            ended = bool(reply) and reply[-1] in self.pair.eos_token_ids
            self._histories[name] = prompts[name] + (reply[:-1] if ended else reply)
        self.result = result
        store = self._store
        turn = {"conversations": len(prompts), "new_tokens": sum(map(len, result.tokens))}
        turn |= {"restored_tokens": store.restored_tokens, "read_tokens": store.read_tokens}
        turn |= {"kept": len(store), "kept_bytes": store.nbytes, "dropped": store.dropped}
        self._turns.append(turn | {"seconds": time.perf_counter() - begin})
        return dict(zip(prompts, result.texts, strict=True))

    def tokens(self, name: str) -> list[int]:
        """Return all tokens of a conversation. Raise ValueError if there is none of that name."""
        if require_str("name", name) not in self._histories:
            known = ", ".join(self._histories) or "none"
            raise ValueError(
                f"name must be that of a conversation, got {short(name)}; they are: {known}"
            )
        return list(self._histories[name])

    def text(self, name: str) -> str:
        """Return a conversation as text; an empty one if the pair has no tokenizer."""
        return decode_texts(self.pair, [self.tokens(name)])[0]

    def forget(self, name: str) -> None:
        """End a conversation and free its K/V. Raise ValueError if there is none of that name."""
        self.tokens(name)
        del self._histories[name]
        self._store.forget(name)

    @property
    def turns(self) -> pd.DataFrame:
        return pd.DataFrame(self._turns)

    def __repr__(self) -> str:
        return f"<Chat: {len(self._histories)} conversations, {len(self._store)} with K/V kept>"

    def _run(self, prompts: Mapping[str, list[int]]) -> Result:
        options = self._options
        planned = None
        limit = inf
        if self._budget is not None:
            texts = list(prompts.values())
            planned = plan_run("memory_budget", self._budget, self.pair, texts, options)
            options = replace(options, **planned.options)
            limit = planned.budget_bytes - planned.peak_bytes
        run = make_run(self.pair, list(prompts.values()), options)
        if self._store.keep == "prompt" and run.state.caches["target"].keeps_states:
            raise ValueError(
                f"keep='prompt' would need the state at the prompt's end, and layers of target="
                f"{type(self.pair.target).__name__} keep those of the last tokens alone; pass "
                "keep='all', or 'none'"
            )
        check_memory(run)
        run.try_models()
        self._store.begin(list(prompts), limit)
        run.state.store = self._store
        collected = collect(run, record=False, partial=False, progress=False)
        return make_result(run, collected, plan=planned)
