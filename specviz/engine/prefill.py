"""How the models read tokens of rows that have no K/V yet: prompts, and what a draft missed.

Contract: forwards that read tokens without drafting or judging any. Rows of similar length are read
together, since shorter ones are filled up.
"""

from collections.abc import Mapping, Sequence

import torch

from specviz.engine.kv.transfer import to_device
from specviz.engine.state import State


def prefill(state: State, rows: Sequence[int]) -> None:
    """Write the K/V of all tokens of `rows` but the last, which is pending, into every cache.

    What a store of earlier runs holds is not read again. Draft models are left out while nothing is
    drafted, and where their K/V is not kept: `catch_up` lets them read what they missed. One
    forward takes up to `batch_size` rows.
    """
    if state.store is not None:
        read(state, {row: state.store.restore(state, row) for row in rows}, ["target"])
        return
    # Rows enter before the round's K is chosen, so this goes by the last one's.
    reads_all = state.keep_draft and state.num_draft_tokens > 0
    names = [name for name, cache in state.caches.items() if cache.holds_kv]
    read(state, dict.fromkeys(rows, 0), names if reads_all else ["target"])


def catch_up(state: State) -> None:
    """Let the draft models read what they have missed of the batch, before they draft."""
    state.caught_up = 0
    names = [name for name, cache in state.caches.items() if name != "target" and cache.holds_kv]
    firsts = {}
    for i, row in enumerate(state.batch.rows):
        first = row.draft_cached if state.keep_draft else 0
        if first < row.length - state.fed_first:
            firsts[i] = first
    if names and firsts:
        state.caught_up = read(state, firsts, names)


def read(state: State, firsts: Mapping[int, int], names: Sequence[str]) -> int:
    """Prefill the caches `names` with rows' tokens, each from its first to the last but one.

    Args:
        firsts: by row, the index of the first token to read.

    Returns:
        How many tokens each model was given, the filling of shorter rows included.
    """
    if not firsts:
        return 0
    rows = list(firsts)
    counts = [state.batch.live[row].length - 1 - firsts[row] for row in rows]
    most, columns = state.levers.prefill_shape(state.batch_size, max(counts))
    forward_tokens = state.caches["target"].forward_tokens
    # What a draft model missed is read in one forward: few rows miss much at once.
    if names[0] != "target":
        forward_tokens = None
    total = 0
    for group in similar_lengths(counts, most, forward_tokens):
        total += _read_group(state, {rows[i]: firsts[rows[i]] for i in group}, names, columns)
    return total


def _read_group(state: State, firsts: Mapping[int, int], names: Sequence[str], most: int) -> int:
    """Prefill with the tokens of rows side by side, up to `most` of each row in a forward."""
    batch = state.batch
    counts = {row: batch.live[row].length - 1 for row in firsts}
    longest = max(counts[row] - first for row, first in firsts.items())
    if longest == 0:
        return 0
    device = batch.tokens.device
    # The batch's own index where it will do: a tensor that is made here would need other code,
    # compiled for it.
    is_batch = list(firsts) == list(range(len(batch)))
    index = batch.index if is_batch else to_device(list(firsts), device)  # (b,)
    begins = to_device(list(firsts.values()), device)[:, None]  # (b, 1)
    ends = to_device(list(counts.values()), device)[:, None]  # (b, 1)
    window = 1 + max(state.layout.pending(row, count + 1) for row, count in counts.items())
    for begin in range(0, longest, most):
        columns = begins + torch.arange(begin, min(begin + most, longest), device=device)  # (b, q)
        # Filling has to be written somewhere. It lands on the pending token's slot, whose K/V is
        # overwritten before any query sees it.
        indices = torch.minimum(columns, ends)
        tokens = batch.tokens[index].gather(1, indices)
        feed = state.feed_rows(index, tokens, indices, window, columns < ends)
        for name in names:
            cache = state.caches[name]
            if name == "target" and state.features is not None:
                found = cache.prefill(feed, select=state.features.select)
                assert found is not None
                state.features.write(feed.rows, feed.indices, found)
            else:
                cache.prefill(feed)
    if list(names) != ["target"]:
        for row, count in counts.items():
            batch.live[row].draft_cached = count
    return len(firsts) * longest


def similar_lengths(
    lengths: Sequence[int], most: int, forward_tokens: int | None
) -> list[list[int]]:
    """Divide rows into groups, so that prefilling group by group costs least.

    A group costs its rows times its longest row, in tokens, and `forward_tokens` on top. Rows of
    equal length stay together.

    Args:
        lengths: tokens to read of each row.
        most: rows that a forward may take.
        forward_tokens: what one more forward costs, in tokens; None: as few forwards as possible,
            with rows in their order.

    Returns:
        The rows of each group, as places in `lengths`. Each group is in order.
    """
    rows = list(range(len(lengths)))
    if forward_tokens is None:
        return [rows[first : first + most] for first in range(0, len(rows), most)]
    rows.sort(key=lengths.__getitem__)
    # Sorted rows lie next to each other in the best groups. costs[end] is the least cost of the
    # first `end` rows, and begins[end] where the last of their groups begins.
    costs = [0]
    begins = [0]
    for end, row in enumerate(rows, 1):
        options = []
        for begin in range(max(0, end - most), end):
            group = forward_tokens + (end - begin) * lengths[row]
            options.append((costs[begin] + group, begin))
        cost, begin = min(options)
        costs.append(cost)
        begins.append(begin)
    groups = []
    end = len(rows)
    while end:
        groups.append(sorted(rows[begins[end] : end]))
        end = begins[end]
    return groups[::-1]
