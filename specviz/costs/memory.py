"""How much memory a run needs, and the largest batch that fits.

It adds up weights, both K/V slabs as the engine lays them out, what a draft head keeps of the
target's hidden states, logits and workspace. The strategy itself says how many rows and slots it
keeps, so that no rule is written twice. The levers of a run show in the parts that they change.

Not known here: models. Nothing is measured.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import pandas as pd

from specviz.costs.shapes import ITEMSIZE, HeadShape, MeasuredShape, ModelShape
from specviz.util.levers import NONE, Levers
from specviz.util.search import smallest

MAX_ROWS = 2**20
INDEX_BYTES = 8  # a token id or a length
FED = 6  # numbers of each token in a feed: its id, index, slot and so on
CHOSEN_BYTES = 4  # a logit that the draft chose from: always float32
ALWAYS = "always"
Part = tuple[str, str, int]  # part, when, bytes


class SlabUse(Protocol):
    """What a strategy of the engine says about the K/V it keeps."""

    @property
    def drafts(self) -> bool: ...
    def capacity(self, batch_size: int, requests: int) -> int: ...
    def slots(self, longest: int, budget: int, max_draft_tokens: int) -> int: ...


def memory(
    target: ModelShape, draft: ModelShape | None, strategy: SlabUse, **sizes: Any
) -> pd.DataFrame:
    """Return what a run holds, part by part; the arguments are those of `RunMemory`.

    There is one entry a part: part, when ("always", or the phase that needs it for a while), bytes.
    The peak is `peak_bytes` of this table.
    """
    parts = RunMemory(target, draft, strategy, **sizes).parts()
    return pd.DataFrame(parts, columns=["part", "when", "bytes"])


def peak_bytes(table: pd.DataFrame) -> int:
    """Return what is always held plus what the phase with the largest need takes on top."""
    return peak_of(zip(table["part"], table["when"], table["bytes"], strict=True))


def peak_of(parts: Iterable[Part]) -> int:
    """Return `peak_bytes` of the lines of a table."""
    # Not by `groupby`, which takes longer than a round of a small model.
    sums: dict[str, int] = defaultdict(int)
    for _, when, size in parts:
        sums[when] += int(size)
    return sums.pop(ALWAYS) + max(sums.values())


def weight_bytes(parts: Iterable[Part]) -> int:
    """Return the bytes of the weights among the parts."""
    return sum(size for part, _, size in parts if part in ("target weights", "draft weights"))


def as_size(count: float) -> str:
    """Return bytes in words: 31.5 MB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


@dataclass(frozen=True)
class RunMemory:
    """What a run needs.

    Weights, K/V and logits are exact. The workspace of a forward is computed for one layer at a
    time with its usual intermediate values, and for rows that may all realign at once. What
    libraries keep for themselves and the pool of captured graphs are not counted.

    Attributes:
        target, draft: draft is None where proposals need no model, and a `HeadShape` where a head
            of the target drafts.
        strategy: one of the engine's, from `specviz.strategy(name, **options)`.
        dtype: of weights and K/V.
        prompt_tokens, max_new_tokens: of the longest prompt, and the largest budget.
        batch_size, num_draft_tokens: B and K.
        requests: how many prompts there are; the default is so many that the rows never run out.
        levers: those of the run.
        margin: what counts on top, as a share of all but the weights.

    Raises:
        ValueError: the strategy refuses the batch size.
    """

    target: ModelShape
    draft: ModelShape | None
    strategy: SlabUse
    dtype: str
    prompt_tokens: int
    max_new_tokens: int
    batch_size: int = 1
    num_draft_tokens: int = 5
    requests: int = MAX_ROWS
    levers: Levers = NONE
    margin: float = 0.0

    def parts(self) -> list[Part]:
        """Return what the run holds, as lines (part, when, bytes)."""
        parts = self.kept() + self.temporary()
        if self.margin:
            beside = peak_of(parts) - weight_bytes(parts)
            parts.append(("margin", ALWAYS, int(self.margin * beside) + 1))
        return parts

    def peak(self) -> int:
        return peak_of(self.parts())

    def largest_batch(self, budget_bytes: float, most: int = MAX_ROWS) -> int:
        """Return the largest B whose peak is within `budget_bytes`; 0 if not even one row fits."""

        def exceeds(batch_size: int) -> bool:
            try:
                return replace(self, batch_size=batch_size).peak() > budget_bytes
            except ValueError:
                if batch_size == 1:
                    raise
                return True  # the strategy refuses a batch that is larger than its pool

        too_many = smallest(exceeds, 0, most)
        return most if too_many is None else too_many - 1

    @cached_property
    def k(self) -> int:
        """K, or 0 where nothing is drafted."""
        return self.num_draft_tokens if self.strategy.drafts else 0

    @property
    def longest(self) -> int:
        """Tokens of the longest request, with its prompt."""
        return self.prompt_tokens + self.max_new_tokens

    @cached_property
    def rows(self) -> int:
        """Rows of the K/V slabs."""
        return self.strategy.capacity(self.batch_size, self.requests)

    @cached_property
    def slots(self) -> int:
        """Slots of the K/V slabs."""
        return self.strategy.slots(self.longest, self.max_new_tokens, self.k)

    @property
    def b(self) -> int:
        """Rows that take part in a round."""
        return min(self.batch_size, self.rows)

    @property
    def value_bytes(self) -> int:
        return ITEMSIZE[self.dtype]

    @property
    def head(self) -> HeadShape | None:
        return self.draft if isinstance(self.draft, HeadShape) else None

    @property
    def draft_logits(self) -> int:
        """How many logits the draft chooses from in a round."""
        return 0 if self.draft is None else self.b * self.k * self.draft.vocabulary

    @property
    def target_logits(self) -> int:
        """How many logits one verification makes."""
        return self.b * (self.k + 1) * self.target.vocabulary

    def kv_and_states(self, shape: ModelShape) -> tuple[int, int]:
        """Return the bytes of all rows' K/V, and of their states."""
        kv = self.rows * self.slots * shape.kv_bytes_per_slot(self.dtype)
        return kv, self.rows * shape.row_bytes(self.k)

    def kept(self) -> list[Part]:
        """Return what is held all the time."""
        draft = self.draft
        draft_weights = 0 if draft is None else draft.weight_bytes(self.dtype)
        draft_kv = draft_states = 0
        if draft is not None and self.k and self.levers.keep_draft:
            draft_kv, draft_states = self.kv_and_states(draft)
        features = 0
        if self.head is not None and self.k:
            tokens = self.rows * (self.longest + self.k + 1)
            features = tokens * self.head.features * self.value_bytes
        target_kv, target_states = self.kv_and_states(self.target)
        # The draft's logits are kept until the next round's replace them.
        draft_logits = CHOSEN_BYTES * self.draft_logits
        states = [("target states", target_states), ("draft states", draft_states)]
        parts = [
            ("target weights", self.target.weight_bytes(self.dtype)),
            ("draft weights", draft_weights),
            ("target K/V", target_kv),
            ("draft K/V", draft_kv),
            *[part for part in states if part[1]],
            ("features", features),
            ("tokens", INDEX_BYTES * self.rows * (self.longest + self.k + 4)),
            ("draft logits", draft_logits),
            ("target logits", self.value_bytes * self.target_logits),
        ]
        return [(part, ALWAYS, size) for part, size in parts]

    def temporary(self) -> list[Part]:
        """Return what the phases need for a while."""
        size, b, target = self.value_bytes, self.b, self.target
        reading = [target]
        # A head without attention reads no prompt and has no K/V to move. A draft whose K/V is not
        # kept reads as it drafts.
        attends = self.head is None or self.head.attends
        if self.draft is not None and self.k and attends and self.levers.keep_draft:
            reading.append(self.draft)
        verification = max(
            self._workspace(target, b, self.k + 1, self.slots, self.head),
            size * self.target_logits
            + self._after_forward(target, self.k + 1, self.slots, self.head),
        )
        float32_logits = 0
        if size < CHOSEN_BYTES:
            float32_logits = CHOSEN_BYTES * self.target_logits
        moved = [self._layer_bytes(shape, b, self.slots) for shape in reading]
        for shape in reading:
            if isinstance(shape, MeasuredShape):
                moved.append(int(b * shape.row_bytes(self.k) * shape.largest_state))
        return [
            ("prefill", "schedule", self._prefills(reading)),
            ("drafting", "draft", self._drafting()),
            ("verification", "verify", verification),
            ("logits in float32", "accept", float32_logits),
            ("realignment", "synchronise", max(moved)),
        ]

    def _prefills(self, reading: list[ModelShape]) -> int:
        """Return the bytes that reading prompts needs on top of what is held in the rounds."""
        # Models are prefilled one after the other.
        spaces = [self._prefill(shape, self.prompt_tokens, self.head) for shape in reading]
        if self.requests > self.rows:  # prompts enter after the first round
            return max(spaces)
        # The first prompts are read before there are logits, and by the target before the draft.
        held = {part: count for part, _, count in self.kept()}
        spaces[0] -= held["draft K/V"]
        return max(0, max(spaces) - held["draft logits"] - held["target logits"])

    def _prefill(self, shape: ModelShape, prompt_tokens: int, head: HeadShape | None = None) -> int:
        """Return the bytes that reading prompts of so many tokens needs for a while."""
        rows, tokens, copied = self.b, prompt_tokens - 1, prompt_tokens
        most = self.levers.prefill_tokens
        if most is not None:
            # More of shorter rows may share a forward, so what is in one is bounded by its tokens.
            tokens = min(most, rows * (prompt_tokens - 1))
            copied = max(prompt_tokens, tokens + min(rows, most))
            rows = 1
        reach = max(prompt_tokens, self.prompt_tokens)
        # Prompts that enter later end in the column where the other rows end.
        if self.requests > self.rows > 1 and getattr(self.strategy, "right_aligned", False):
            reach = max(reach, self.slots - self.k - 1)
        space = self._workspace(shape, rows, tokens, reach, head)
        return space + 2 * self._layer_bytes(shape, rows, copied)  # K and V in their new order

    def _drafting(self) -> int:
        """Return the bytes that drafting needs for a while."""
        draft = self.draft
        if draft is None or not self.k:
            return 0
        b, slots = self.b, self.slots
        first = 2  # tokens that the first forward reads
        if self.head is not None:
            first = self.k + 1
        # Twice: the logits of single forwards, and all of them put together.
        needs = [
            self._workspace(draft, b, 2, slots) + 2 * CHOSEN_BYTES * self.draft_logits,
            self._workspace(draft, b, first, slots),
        ]
        held = 0
        if not self.levers.keep_draft:
            held = sum(self.kv_and_states(draft))
            needs.append(self._prefill(draft, min(self.longest, slots)))
        return held + max(needs)

    def _workspace(
        self, shape: ModelShape, rows: int, tokens: int, slots: int, head: HeadShape | None = None
    ) -> int:
        """Return the bytes one forward needs for a while.

        head: what reads the hidden states of the target's forwards.
        """
        masks = self._masks(shape, rows, tokens, slots)
        if isinstance(shape, MeasuredShape):
            shared = shape.fixed_work + tokens * shape.column_work
            return masks + shared + rows * (shape.row_work + tokens * shape.token_work)
        # Layers run one after the other, and a layer's attention is done before its MLP: only the
        # larger of the two counts, once, beside the masks and the residual stream.
        attention = (4 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
        mlp = (3 if shape.gated else 2) * shape.intermediate
        values = 3 * shape.hidden + max(mlp, attention)
        if isinstance(shape, HeadShape):
            # A token's feature as it is kept and as it is read, the embedding, and both together.
            values += 2 * shape.features + (shape.entry - shape.hidden) + shape.entry
        elif head is not None:
            # In the last layer the outputs of the others are still there.
            last = values + (shape.layers - 1) * shape.hidden
            values = max(last, _after_layers(shape, head))
        elif not shape.positions:
            values += 4 * shape.head_dim  # the rotation; beside all layers' outputs it is nothing
        return masks + rows * tokens * (FED * INDEX_BYTES + self.value_bytes * values)

    def _after_forward(
        self, shape: ModelShape, tokens: int, slots: int, head: HeadShape | None = None
    ) -> int:
        """Return the bytes that are still there beside the logits of a forward."""
        held = self.b * tokens * self.value_bytes * _after_layers(shape, head)
        return self._masks(shape, self.b, tokens, slots) + held

    def _masks(self, shape: ModelShape, rows: int, tokens: int, slots: int) -> int:
        """Return the bytes of a forward's masks: one bool, and one float a query group."""
        if isinstance(shape, MeasuredShape):  # K/V that is copied for it is among them
            return rows * slots * (shape.slot_work + tokens * shape.pair_work)
        groups = shape.heads // shape.kv_heads
        return rows * tokens * slots * (1 + groups * self.value_bytes)

    def _layer_bytes(self, shape: ModelShape, rows: int, slots: int) -> int:
        """Return the bytes of one layer's K, or of its V."""
        return rows * slots * self.value_bytes * shape.kv_heads * shape.head_dim


def _after_layers(shape: ModelShape, head: HeadShape | None) -> int:
    """Return how many values of a token are left after the layers.

    Where a head reads hidden states, these are all layers' and those that it reads, side by side.
    """
    if head is None:
        return shape.hidden
    return (shape.layers + 1) * shape.hidden + head.read + head.features
