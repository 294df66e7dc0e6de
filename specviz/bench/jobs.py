"""What a benchmark runs: jobs, and the setting that they share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from specviz.bench.grid import Cell, Grid
from specviz.bench.log import Measurement, cell_key
from specviz.bench.outcome import Outcome
from specviz.bench.sources import LoadedPair, PairSource, prompt_ids
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.util.validate import is_list, require_kind, require_list, short


@dataclass(frozen=True)
class Setting:
    """What holds for all cells.

    Attributes:
        sources: of pairs, by their labels.
        prompts: texts or token ids; sources that draw their own ignore them.
        limit: how many prompts, see `prompt_ids`.
        recording: whether a recorded run follows each run, to see what recording costs.
        turns: slices into which each cell is cut, so that cells of the same work alternate (see
            `take_turns`); 1: one cell runs after the other.
    """

    sources: dict[str, PairSource]
    prompts: Sequence[Prompt]
    limit: int | None = None
    recording: bool = False
    turns: int = 1

    def prompt_ids(self, cell: Cell, pair: Pair) -> list[list[int]]:
        """Return the prompts of a cell as token ids."""
        source = self.sources[cell.pair]
        return prompt_ids(source, pair, self.prompts, self.limit, cell.prompt_tokens)


@dataclass(frozen=True)
class Job:
    """One run of one cell. The first repetition is 0."""

    cell: Cell
    repetition: int

    @property
    def key(self) -> tuple[str, int]:
        """The same as `key_of` the job's measurement: what finds it in a log."""
        return cell_key(self.cell.key), self.repetition

    def measurement(self, outcome: Outcome) -> Measurement:
        """Return what the log keeps of the run."""
        return {"cell": self.cell.key, "repetition": self.repetition, **outcome}


Runner = Callable[[Setting, Sequence[Job]], Iterator[tuple[Job, Outcome]]]


def sources_of(pairs: Pair | PairSource | Sequence[Pair | PairSource]) -> dict[str, PairSource]:
    """Return the sources by label.

    Raises:
        ValueError: there is none, one is not a pair, or a label occurs twice.
    """
    if isinstance(pairs, str | bytes):
        raise ValueError(f"pairs must be a pair or a list, got {short(pairs)}; pass a Pair")
    given = list(pairs) if isinstance(pairs, Sequence) else [pairs]
    if not given:
        raise ValueError("pairs=[] is empty; pass at least one pair")
    sources: dict[str, PairSource] = {}
    for i, pair in enumerate(given):
        source = LoadedPair(pair, f"own {i}" if i else "own") if isinstance(pair, Pair) else pair
        if not isinstance(source, PairSource):
            raise ValueError(
                f"pairs[{i}] must be a pair, got {short(pair)}; "
                "pass a Pair, or a source of one such as StoredPair() or ShapePair(name)"
            )
        if source.label in sources:
            raise ValueError(f"pairs names {source.label!r} twice; name it once")
        sources[source.label] = source
    return sources


def jobs_of(labels: Sequence[str], grids: Sequence[Grid]) -> list[Job]:
    """Order the runs: pair by pair; within one, all cells of all grids once, then all again.

    Raises:
        ValueError: there is no grid.
    """
    if is_list(grids) and not grids:
        raise ValueError("grids=[] is empty; pass at least one Grid")
    require_list("grids", grids, "pass a Grid, or a list of them")
    for i, grid in enumerate(grids):
        require_kind(f"grids[{i}]", grid, Grid, "pass a Grid, or a list of them")
    repetitions: dict[Cell, int] = {}
    for label in labels:
        for grid in grids:
            for cell in grid.cells(label):
                repetitions[cell] = max(grid.repetitions, repetitions.get(cell, 0))
    models = list(dict.fromkeys(cell.models for cell in repetitions))
    jobs = [Job(cell, i) for cell, number in repetitions.items() for i in range(number)]
    return sorted(jobs, key=lambda job: (models.index(job.cell.models), job.repetition))
