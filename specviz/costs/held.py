"""The parts of a run's memory: what is always held, and what each phase needs on top.

The levers of a run show in the parts that they change.

Not known here: models. Nothing is measured.
"""

from dataclasses import dataclass

from specviz.costs.head_shape import HeadShape
from specviz.costs.measured_shape import MeasuredShape, moved_state_bytes, row_bytes
from specviz.costs.shapes import ModelShape, itemsize
from specviz.util.levers import Levers

INDEX_BYTES = 8  # a token id or a length
FED = 6  # numbers of each token in a feed: its id, index, slot and so on
CHOSEN_BYTES = 4  # a logit that the draft chose from: always float32
ALWAYS = "always"
Part = tuple[str, str, int]  # part, when, bytes


@dataclass(frozen=True)
class Sizes:
    """The sizes of a run.

    Attributes:
        batch_size, num_draft_tokens: B and K; K is 0 where nothing is drafted.
        longest: tokens of the longest request, with its prompt.
        rows, slots: of the K/V slabs.
        keeps_draft: whether the draft model's K/V is kept between rounds.
        refills: whether prompts enter after the first round.
        reach: slots that a prompt's forward may see, from the first one on.
    """

    dtype: str
    batch_size: int
    num_draft_tokens: int
    prompt_tokens: int
    longest: int
    rows: int
    slots: int
    levers: Levers
    keeps_draft: bool
    refills: bool
    reach: int

    @property
    def value_bytes(self) -> int:
        return itemsize(self.dtype)

    def kv_bytes(self, shape: ModelShape, slots: int) -> int:
        return self.rows * slots * shape.kv_bytes_per_slot(self.dtype)

    def state_bytes(self, shape: ModelShape) -> int:
        """Return the bytes of all rows' states."""
        return self.rows * row_bytes(shape, self.num_draft_tokens)

    def draft_slots(self, draft: ModelShape) -> int:
        """Return the slots of K/V that the draft keeps of a row."""
        if self.levers.draft_window is None or isinstance(draft, HeadShape):
            return self.slots
        return min(self.levers.draft_window, self.slots)

    def draft_logits(self, draft: ModelShape) -> int:
        """Return how many logits the draft chooses from in a round."""
        return self.batch_size * self.num_draft_tokens * draft.vocabulary

    def target_logits(self, target: ModelShape) -> int:
        """Return how many logits one verification makes."""
        return self.batch_size * (self.num_draft_tokens + 1) * target.vocabulary


def kept(target: ModelShape, draft: ModelShape | None, sizes: Sizes) -> list[Part]:
    """Return what is held all the time."""
    draft_weights = 0
    draft_kv = 0
    draft_states = 0
    draft_logits = 0
    if draft is not None:
        draft_weights = draft.weight_bytes(sizes.dtype)
        if sizes.num_draft_tokens and sizes.keeps_draft:
            draft_kv = sizes.kv_bytes(draft, sizes.draft_slots(draft))
            draft_states = sizes.state_bytes(draft)
        if sizes.levers.draft_logits:
            draft_logits = CHOSEN_BYTES * sizes.draft_logits(draft)
    features = 0
    if isinstance(draft, HeadShape) and sizes.num_draft_tokens:
        kept_tokens = sizes.longest + sizes.num_draft_tokens + 1
        features = draft.kept_bytes(sizes.dtype, sizes.rows, kept_tokens)
    tokens = INDEX_BYTES * sizes.rows * (sizes.longest + sizes.num_draft_tokens + 4)
    target_logits = sizes.value_bytes * sizes.target_logits(target)
    states = [
        ("target states", ALWAYS, sizes.state_bytes(target)),
        ("draft states", ALWAYS, draft_states),
    ]
    return [
        ("target weights", ALWAYS, target.weight_bytes(sizes.dtype)),
        ("draft weights", ALWAYS, draft_weights),
        ("target K/V", ALWAYS, sizes.kv_bytes(target, sizes.slots)),
        ("draft K/V", ALWAYS, draft_kv),
        *[part for part in states if part[2]],
        ("features", ALWAYS, features),
        ("tokens", ALWAYS, tokens),
        ("draft logits", ALWAYS, draft_logits),  # kept until the next round's replace them
        ("target logits", ALWAYS, target_logits),
    ]


def temporary(target: ModelShape, draft: ModelShape | None, sizes: Sizes) -> list[Part]:
    """Return what the phases need for a while."""
    size = sizes.value_bytes
    b = sizes.batch_size
    models = [(target, sizes.slots)]
    head = draft if isinstance(draft, HeadShape) else None
    drafting = 0
    if draft is not None and sizes.num_draft_tokens:
        drafting = _drafting(draft, sizes)
        # A head without attention reads no prompt and has no K/V to move.
        if head is None or head.attends:
            models.append((draft, sizes.draft_slots(draft)))
    # A draft without all K/V reads as it drafts.
    reading = [
        shape
        for shape, slots in models
        if shape is target or (sizes.keeps_draft and slots == sizes.slots)
    ]
    num_logits = sizes.target_logits(target)
    width = sizes.num_draft_tokens + 1
    verification = max(
        _workspace(target, size, b, width, sizes.slots, head),
        size * num_logits + _after_forward(target, size, b, width, sizes.slots, head),
    )
    float32_logits = 0
    if size < CHOSEN_BYTES:
        judged = min(sizes.levers.accept_rows or b, b)
        float32_logits = CHOSEN_BYTES * num_logits * judged // b
    k = sizes.num_draft_tokens
    realignment = max(
        max(_layer_bytes(shape, size, b, sizes.slots), moved_state_bytes(shape, b, k))
        for shape in reading
    )
    return [
        ("prefill", "schedule", _prefills(target, draft, reading, sizes)),
        ("drafting", "draft", drafting),
        ("verification", "verify", verification),
        ("logits in float32", "accept", float32_logits),
        ("realignment", "synchronise", realignment),
        ("growth", "growth", _growth(models, sizes)),
    ]


def _growth(models: list[tuple[ModelShape, int]], sizes: Sizes) -> int:
    """Return the bytes of the largest slab of a layer that is copied as it grows."""
    block = sizes.levers.slab_block
    if block is None:
        return 0
    before = (sizes.slots - 1) // block * block
    return max(
        _layer_bytes(shape, sizes.value_bytes, sizes.rows, before)
        for shape, slots in models
        if slots == sizes.slots
    )


def _prefills(
    target: ModelShape, draft: ModelShape | None, reading: list[ModelShape], sizes: Sizes
) -> int:
    """Return the bytes that reading prompts needs on top of what is held in the rounds."""
    # Models are prefilled one after the other.
    head = draft if isinstance(draft, HeadShape) else None
    spaces = [_prefill(shape, sizes, sizes.prompt_tokens, head) for shape in reading]
    if sizes.refills:
        return max(spaces)
    # The first prompts are read before there are logits, and by the target before the draft.
    held = {part: count for part, _, count in kept(target, draft, sizes)}
    spaces[0] -= held["draft K/V"]
    return max(0, max(spaces) - held["draft logits"] - held["target logits"])


def _prefill(
    shape: ModelShape, sizes: Sizes, prompt_tokens: int, head: HeadShape | None = None
) -> int:
    """Return the bytes that reading prompts of so many tokens needs for a while."""
    size = sizes.value_bytes
    b = sizes.batch_size
    reach = max(prompt_tokens, sizes.reach)
    most = sizes.levers.prefill_tokens
    if most is None:
        space = _workspace(shape, size, b, prompt_tokens - 1, reach, head)
        # K and V in their new order
        return space + 2 * _layer_bytes(shape, size, b, prompt_tokens)
    # More of shorter rows may share a forward, so what is in one is bounded by its tokens.
    tokens = min(most, b * (prompt_tokens - 1))
    copied = max(prompt_tokens, tokens + min(b, most))
    space = _workspace(shape, size, 1, tokens, reach, head)
    return space + 2 * _layer_bytes(shape, size, 1, copied)


def _drafting(draft: ModelShape, sizes: Sizes) -> int:
    """Return the bytes that drafting needs for a while."""
    k = sizes.num_draft_tokens
    is_head = isinstance(draft, HeadShape)
    copies = 2  # the logits of single forwards, and all of them put together
    first = 2  # tokens that the first forward reads
    if isinstance(draft, HeadShape):
        copies = 1 if draft.parallel else 2
        first = 2 * k if draft.parallel else k + 1
    step = 0
    if not sizes.levers.draft_logits:
        copies = 0
        # Those of one forward, of all tokens that it reads, and of the forward before.
        step = (first + 1) * sizes.batch_size * draft.vocabulary * sizes.value_bytes
        step += _after_forward(draft, sizes.value_bytes, sizes.batch_size, first, sizes.slots)
        if sizes.value_bytes < CHOSEN_BYTES:
            step += sizes.batch_size * draft.vocabulary * CHOSEN_BYTES
    slots = sizes.draft_slots(draft)
    space = [
        _workspace(draft, sizes.value_bytes, sizes.batch_size, tokens, slots)
        for tokens in (2, first)
    ]
    all_logits = CHOSEN_BYTES * sizes.draft_logits(draft)
    needs = [space[0] + copies * all_logits, space[1], step]
    held = 0
    if not sizes.keeps_draft:
        held = sizes.kv_bytes(draft, slots) + sizes.state_bytes(draft)
        needs.append(_prefill(draft, sizes, min(sizes.longest, slots)))
    elif slots < sizes.slots and not is_head:
        needs.append(_prefill(draft, sizes, max(min(sizes.prompt_tokens, slots), slots // 2)))
    return held + max(needs)


def _workspace(
    shape: ModelShape,
    size: int,
    rows: int,
    tokens: int,
    slots: int,
    head: HeadShape | None = None,
) -> int:
    """Return the bytes one forward needs for a while.

    head: what reads the hidden states of the target's forwards.
    """
    if isinstance(shape, MeasuredShape):
        return shape.workspace(rows, tokens) + shape.mask_bytes(rows, tokens, slots)
    # Layers run one after the other, and a layer's attention is done before its MLP: only the
    # larger of the two counts, once, beside the masks and the residual stream.
    attention = 4 * shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim
    mlp = (3 if shape.gated else 2) * shape.intermediate
    values = 3 * shape.hidden + max(mlp, attention)
    if isinstance(shape, HeadShape):
        values += shape.entry_values
    elif head is not None:
        # In the last layer the outputs of the others are still there. After it, all of them and
        # those that the head reads, side by side.
        after = (shape.layers + 1) * shape.hidden + head.read + head.features
        values = max(values + (shape.layers - 1) * shape.hidden, after)
    elif not shape.positions:
        values += 4 * shape.head_dim  # the rotation; beside all layers' outputs it is nothing
    indices = FED * INDEX_BYTES * rows * tokens
    masks = _masks(shape, size, rows, tokens, slots)
    return masks + indices + size * rows * tokens * values


def _after_forward(
    shape: ModelShape,
    size: int,
    rows: int,
    tokens: int,
    slots: int,
    head: HeadShape | None = None,
) -> int:
    """Return the bytes that are still there beside the logits of a forward."""
    values = shape.hidden
    if head is not None:
        values = (shape.layers + 1) * shape.hidden + head.read + head.features
    return _masks(shape, size, rows, tokens, slots) + size * rows * tokens * values


def _masks(shape: ModelShape, size: int, rows: int, tokens: int, slots: int) -> int:
    """Return the bytes of a forward's masks: one bool, and one float a query group."""
    if isinstance(shape, MeasuredShape):
        return shape.mask_bytes(rows, tokens, slots)
    groups = shape.heads // shape.kv_heads
    return rows * tokens * slots * (1 + groups * size)


def _layer_bytes(shape: ModelShape, size: int, rows: int, slots: int) -> int:
    """Return the bytes of one layer's K, or of its V."""
    return rows * slots * size * shape.kv_heads * shape.head_dim
