"""`chat`: conversations that go on, with their K/V kept between turns under one memory budget.

A turn is a run like any other. What is kept changes how many tokens are read again, never the text.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from specviz.engine.kv.store import KVStore
from specviz.engine.models.pair import Pair
from specviz.engine.options import Options
from specviz.engine.requests import Prompt, encode
from specviz.engine.run import check_pair, make_run
from specviz.generation.assemble import make_result
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
        self._keep = keep
        self._options = options
        self._store = None if keep == "none" else KVStore(prompts_only=keep == "prompt")
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
        names = [require_str("messages", name, "name conversations by texts") for name in messages]
        prompts = [self._extended(name, messages[name]) for name in names]
        self.result = self._run(names, prompts)
        replies = {}
        for name, prompt, reply, text in zip(
            names, prompts, self.result.tokens, self.result.texts, strict=True
        ):
            ended = bool(reply) and reply[-1] in self.pair.eos_token_ids
            self._histories[name] = prompt + (reply[:-1] if ended else reply)
            replies[name] = text
        self._note(prompts, time.perf_counter() - begin)
        return replies

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
        tokens = self.tokens(name)
        if self.pair.tokenizer is None:
            return ""
        return str(self.pair.tokenizer.decode(tokens, skip_special_tokens=True))

    def forget(self, name: str) -> None:
        """End a conversation and free its K/V. Raise ValueError if there is none of that name."""
        self.tokens(name)
        del self._histories[name]
        if self._store is not None:
            self._store.forget(name)

    @property
    def turns(self) -> pd.DataFrame:
        return pd.DataFrame(self._turns)

    def __repr__(self) -> str:
        kept = 0 if self._store is None else len(self._store)
        return f"<Chat: {len(self._histories)} conversations, {kept} with K/V kept>"

    def _extended(self, name: str, message: Prompt) -> list[int]:
        history = self._histories.get(name, [])
        return history + encode(self.pair, f"messages[{name!r}]", message, begins=not history)

    def _run(self, names: list[str], prompts: list[list[int]]) -> Result:
        options = self._options
        planned = None
        limit = None
        if self._budget is not None:
            planned = plan_run("memory_budget", self._budget, self.pair, prompts, options)
            options = replace(options, **planned.options)
            limit = planned.budget_bytes - planned.peak_bytes
        run = make_run(self.pair, prompts, options)
        if self._keep == "prompt" and run.state.caches["target"].keeps_states:
            raise ValueError(
                f"keep='prompt' would need the state at the prompt's end, and layers of target="
                f"{type(self.pair.target).__name__} keep those of the last tokens alone; pass "
                "keep='all', or 'none'"
            )
        check_memory(run)
        run.try_models()
        if self._store is not None:
            self._store.begin(names, limit)
            run.state.store = self._store
        collected = collect(run, record=False, partial=False, progress=False)
        return make_result(run, collected, plan=planned)

    def _note(self, prompts: list[list[int]], seconds: float) -> None:
        store = self._store
        assert self.result is not None
        self._turns.append(
            {
                "conversations": len(prompts),
                "new_tokens": sum(map(len, self.result.tokens)),
                "restored_tokens": store.restored_tokens if store is not None else 0,
                "read_tokens": store.read_tokens
                if store is not None
                else sum(len(p) - 1 for p in prompts),
                "kept": len(store) if store is not None else 0,
                "kept_bytes": store.nbytes if store is not None else 0,
                "dropped": store.dropped if store is not None else 0,
                "seconds": seconds,
            }
        )
