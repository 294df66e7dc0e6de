"""Where a head's features came from: in the record's readers, in films and in sentences.

The expected values are worked out from what the engine called, or from the record's tables.
"""

import functools
import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from conftest import make_prompts
from tiny_heads import STEPS, pair_with
from tiny_run import TRACE

import specviz as sv
from specviz.engine.drafters import Drafter
from specviz.engine.heads import KINDS
from specviz.engine.heads.cached import CachedHead, CachedMtp
from specviz.record.replay import NONE, OWN, SOURCES, TARGET, Replay, feature_reads, head_name
from specviz.record.schema import ACCEPTED, BONUS, PHASES, PROMPT, STALE
from specviz.record.trace import Trace
from specviz.views.stepper.film import film

PROMPTS = [prompt for prompt in make_prompts() if len(prompt) < 20][:5]
STRATEGIES = ("inplace", "eqspec", "masking", "exspec")
SCHEDULE, DRAFT, VERIFY, ACCEPT, SYNCHRONISE = range(len(PHASES))
every_head = pytest.mark.parametrize("kind", KINDS)


@functools.cache
def recorded(kind: str, strategy: str = "eqspec", drafter: Drafter | None = None) -> Trace:
    return sv.generate(
        pair_with("llama", kind),
        PROMPTS,
        drafter=drafter or kind,
        strategy=strategy,
        num_draft_tokens=STEPS,
        batch_size=3,
        max_new_tokens=16,
        record=True,
        progress=False,
    ).trace


@functools.cache
def filmed(kind: str, strategy: str = "eqspec") -> dict[str, Any]:
    return film(recorded(kind, strategy))


def beyond(trace: Trace, number: int, row: int) -> np.ndarray:
    """Return what the head was fed behind the pending token of a row: entries of `feeds`."""
    feeds = trace.feeds
    entry = np.flatnonzero(trace.rows["round"] == number)[row]
    own = (feeds["round"] == number) & (feeds["phase"] == DRAFT) & (feeds["model"] == 1)
    own &= feeds["request"] == trace.rows["request"][entry]
    return np.flatnonzero(own & (feeds["index"] >= trace.rows["length"][entry]))


# --- the record ---


@pytest.mark.sweep(4)
@pytest.mark.parametrize("kind", ["eagle3", "mtp", "clover"])  # one entry of K/V a token
def test_sources_are_those_that_the_engine_handed_to_the_head(kind, monkeypatch):
    """Counted where the head is called to draft, apart from the record."""
    recorded(kind)  # the head is tried before its first run, and that would be counted, too
    read: Counter[int] = Counter()
    cached = CachedMtp if kind == "mtp" else CachedHead
    forward = cached.forward
    forward_next = cached.forward_next

    def counted_forward(self, feed, **arguments):
        first = int((feed.indices == 0).sum())
        read.update({NONE: first, TARGET: feed.indices.numel() - first})
        return forward(self, feed, **arguments)

    def counted_next(self, feed, features):
        read[OWN] += feed.indices.numel()
        return forward_next(self, feed, features)

    monkeypatch.setattr(cached, "forward", counted_forward)
    monkeypatch.setattr(cached, "forward_next", counted_next)
    trace = recorded.__wrapped__(kind)
    of_head = trace.feeds["model"] == 1
    reads = feature_reads(trace).source
    drafting = trace.feeds["phase"] == DRAFT
    assert set(reads[of_head & ~drafting].tolist()) <= {NONE, TARGET}, "prompts have features"
    source = reads[of_head & drafting]
    found = {code: int((source == code).sum()) for code in (NONE, TARGET, OWN)}
    assert found == {code: read[code] for code in (NONE, TARGET, OWN)}
    assert found[TARGET] > 0
    assert (found[OWN] > 0) == (kind != "clover")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dflash"])
def test_an_entry_reads_the_feature_of_the_token_before_it(kind):
    trace = recorded(kind)
    reads = feature_reads(trace)
    index = trace.feeds["index"]
    has_token = (reads.source == TARGET) | (reads.source == OWN)
    assert np.array_equal(reads.token[has_token], index[has_token] - 1)
    assert (reads.token[~has_token] == -1).all()
    assert (index[has_token] > 0).all()
    assert (reads.source[trace.feeds["model"] == 0] == NONE).all()
    assert head_name(trace) == f"{kind} head"


def test_a_run_without_a_head_reads_no_features():
    reads = feature_reads(TRACE)
    assert head_name(TRACE) is None
    assert reads.source.shape == reads.token.shape == TRACE.feeds["index"].shape
    assert (reads.source == NONE).all()
    assert (reads.token == -1).all()


def test_replays_keep_the_source_of_each_slot():
    """Over realignments, too: what is accepted keeps its source until it is read again."""
    trace = recorded("eagle3")
    seen = Counter()
    for frame in Replay(trace).frames():
        held = frame.draft
        counts = (held.state >= PROMPT) & (held.state <= BONUS)
        provisional = counts & (held.source == OWN)
        assert (held.state[provisional] == ACCEPTED).all()
        seen[frame.phase] += int(provisional.sum())
        if frame.phase == "draft":
            assert not provisional.any(), "all accepted drafts are read again"
        assert (frame.target.source[frame.target.state != 0] <= NONE).all()
        stale = held.state == STALE
        seen["stale"] += int((stale & (held.source == OWN)).sum())
    assert seen["stale"] > 0
    assert seen["synchronise"] > 0
    assert seen["schedule"] > 0


# --- the film ---


@pytest.mark.sweep(12)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_guessed_slots_are_what_the_head_was_fed_behind_the_pending_token(strategy):
    trace = recorded("eagle3", strategy)
    told = filmed("eagle3", strategy)
    assert told["head"] == "eagle3 head"
    assert told["sources"] == list(SOURCES)
    total = Counter()
    for number, each in enumerate(told["rounds"]):
        for row, entry in enumerate(each["rows"]):
            fed = beyond(trace, number, row)
            kept = entry["length"] + min(entry["accepted"], entry["gained"])
            slots = set(trace.feeds["slot"][fed].tolist())
            accepted = set(trace.feeds["slot"][fed[trace.feeds["index"][fed] < kept]].tolist())
            for phase, wanted in ((DRAFT, slots), (VERIFY, slots), (ACCEPT, accepted)):
                runs = each["stages"][phase]["guessed"][row]
                assert {slot for first, stop, _ in runs for slot in range(first, stop)} == wanted
                assert {source for *_, source in runs} <= {SOURCES.index("own")}
                total[phase] += len(wanted)
    assert total[DRAFT] > 0
    assert total[ACCEPT] > 0


def test_a_tree_that_grows_from_a_head_is_made_of_guesses():
    drafter = sv.drafter("tree", base="eagle3", depth=3, width=2, children=2)
    trace = recorded("eagle3", "inplace", drafter)
    told = film(trace)
    assert told["head"] == "eagle3 head"
    assert (trace.rows["parents"] == -1).sum(axis=1).max() > 1
    for number, each in enumerate(told["rounds"]):
        for row, entry in enumerate(each["rows"]):
            slots = set(trace.feeds["slot"][beyond(trace, number, row)].tolist())
            for phase in (DRAFT, ACCEPT):
                runs = each["stages"][phase]["guessed"][row]
                found = {slot for first, stop, _ in runs for slot in range(first, stop)}
                assert found == slots if phase == DRAFT else len(found) <= entry["accepted"]
    assert "It read" in " ".join(each["stages"][DRAFT]["words"] for each in told["rounds"])


def test_a_head_without_guesses_has_none():
    assert not (recorded("medusa").feeds["model"] == 1).any()
    for kind in ("medusa", "clover"):
        stages = [stage for each in filmed(kind)["rounds"] for stage in each["stages"]]
        assert all(not any(stage["guessed"]) for stage in stages)
        assert filmed(kind)["violations"] == []


def test_films_of_other_runs_say_nothing_of_heads():
    told = film(TRACE)
    assert not {"head", "sources"} & told.keys()
    stages = [stage for each in told["rounds"] for stage in each["stages"]]
    assert not any("guessed" in stage for stage in stages)
    for word in ("head", "feature", "mask entr"):
        assert word not in json.dumps([[stage["words"], stage["words_of"]] for stage in stages])


# --- the words ---


def last_accepted(trace: Trace) -> list[int]:
    """By entry of `rows`: how many drafts the round before committed to its request."""
    rows = trace.rows
    last: dict[int, int] = {}
    found = []
    kept = np.minimum(rows["accepted"], rows["gained"]).tolist()
    for request, count in zip(rows["request"].tolist(), kept, strict=True):
        found.append(last.get(request, 0))
        last[request] = count
    return found


@pytest.mark.sweep(4)
@pytest.mark.parametrize("strategy", STRATEGIES)
@every_head
def test_the_draft_is_described_with_what_the_head_read(kind, strategy):
    trace = recorded(kind, strategy)
    accepted = np.array(last_accepted(trace)) * (kind != "medusa")
    drafts = 0
    for number, each in enumerate(filmed(kind, strategy)["rounds"]):
        words = each["stages"][DRAFT]["words"]
        if not any(row["drafted"] for row in each["rows"]):
            continue
        assert words.startswith(f"The {kind} head proposed ")
        here = accepted[trace.rows["round"] == number]
        found = re.search(r"It read (\d+) accepted drafts? with the target's features", words)
        assert (int(found[1]) if found else 0) == here.sum(), words
        drafts += int(here.sum())
        for count, phrase in zip(here, each["stages"][DRAFT]["words_of"], strict=True):
            assert (f"after reading {count} accepted draft" in phrase) == (count > 0)
        assert ("went on with its own output" in words) == (kind in ("eagle3", "mtp"))
        assert ("filled in a block of masks" in words) == (kind == "dflash")
        assert ("last state" in words) == (kind in ("medusa", "clover"))
        assert "draft model" not in words
    assert (drafts > 0) == (kind != "medusa")
