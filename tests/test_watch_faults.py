"""Random faults in a right decoder: `sv.watch` names the injected one, its row and its round."""

import random
from typing import Any

import pytest
from decoder_work import MAX_NEW_TOKENS, K, named, pair, prompts, reference

import specviz as sv

# {what is done to a verification: the rules that name it}
KINDS = {
    "positions": {"positions"},
    "hidden": {"mask"},
    "shown": {"mask"},
    "fed": {"lengths"},
    "copied": {"kv", "mask"},
    "lost": {"kv", "mask"},
}
DECODER = named("holes.Holes")


class Saboteur:
    """A hook that changes one row of one verification, and then nothing any more.

    Args:
        kind: one of KINDS.
        seed: of the choice of round, row, token and slot.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self._kind = kind
        self._rng = random.Random(seed)
        self._left = self._rng.randint(0, 5)  # rounds that are left alone
        self.round = -1
        self.row = -1

    def __call__(self, _: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        cache = given["past_key_values"]
        if self.row >= 0 or not cache.get_seq_length():  # it is done, or this is a prompt
            return None
        self.round += 1
        if self.round < self._left:
            return None
        (ids,) = args
        row = self._rng.randrange(len(ids))
        mask, positions = given["attention_mask"].clone(), given["position_ids"].clone()
        past = mask.shape[1] - ids.shape[1]
        column = self._rng.randrange(ids.shape[1])
        slots = {seen: [i for i in range(past) if mask[row, i] == seen] for seen in (0, 1)}
        if self._kind == "positions":
            positions[row, column:] += self._rng.choice((1, 2, 5))
        elif self._kind in ("hidden", "shown"):
            seen = int(self._kind == "hidden")
            if not slots[seen]:
                return None
            mask[row, self._rng.choice(slots[seen])] = 1 - seen
        elif self._kind == "fed":
            ids = ids.clone()
            ids[row, column] = (ids[row, column] + self._rng.randint(1, 999)) % 3000
        elif not self._of_cache(cache, row, len(ids), slots[1], past):
            return None
        self.row = row
        return (ids,), {**given, "attention_mask": mask, "position_ids": positions}

    def _of_cache(self, cache: Any, row: int, rows: int, slots: list[int], past: int) -> bool:
        """Change K/V of one row; return whether that could be done."""
        if self._kind == "copied" and rows < 2:
            return False
        slot = self._rng.choice(slots)
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
            for each in (layer.keys, layer.values):
                if self._kind == "copied":
                    each[row, :, slots[0] : past] = each[(row + 1) % rows, :, slots[0] : past]
                else:
                    each[row, :, slot] = 0
        return True


def judged(kind: str, seed: int) -> bool | None:
    """Return whether the fault is named; None if it changes nothing."""
    saboteur = Saboteur(kind, seed)
    given = [list(prompt) for prompt in prompts()]
    with sv.watch(pair().target, pair().draft) as seen:
        hook = pair().target.register_forward_pre_hook(saboteur, with_kwargs=True)
        try:
            outputs = DECODER.decode(pair().target, pair().draft, given, K, MAX_NEW_TOKENS, ())
        finally:
            hook.remove()
    report = seen.audit(prompts(), outputs, eos_token_ids=[])
    if report.is_right and outputs == reference(()):
        return None
    if report.is_right:
        return False
    first = report.faults[0]
    return first.rule in KINDS[kind] and (first.round, first.row) == (saboteur.round, saboteur.row)


@pytest.mark.sweep(18)
@pytest.mark.parametrize(("count", "harm"), [(4, 1), pytest.param(24, 14, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_of_injected_faults_95_percent_are_named(kind: str, count: int, harm: int) -> None:
    """Over a hundred of all kinds."""
    found = [judged(kind, seed) for seed in range(count)]
    harmful = [each for each in found if each is not None]
    assert len(harmful) >= harm
    assert sum(harmful) >= 0.95 * len(harmful), f"{sum(harmful)} of {len(harmful)}"
