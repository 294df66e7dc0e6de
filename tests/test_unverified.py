"""What the step-through tells of drafts that are not verified, and of the round's capacity.

The numbers are computed from the record's tables alone. That the lanes show such drafts is tested
with all other cells, in `test_film`.
"""

import json
import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from test_film import RUNS, film, filmed, recorded
from test_sentences import described, scenes
from tiny_run import TRACE

from specviz.checks.fates import FATES, draft_fates
from specviz.record.schema import PHASES
from specviz.views.stepper.batchwords import BATCH_WORDS
from specviz.views.stepper.lanes import KINDS
from specviz.views.stepper.sentences import MAX_LETTERS

SELECTED = [name for name, (_, _, more) in RUNS.items() if "selector" in more]
VERIFY = PHASES.index("verify")
selected = pytest.mark.parametrize("name", SELECTED)


class Told(NamedTuple):
    """A phase of a round: its sentences, the phrases of its rows, and their columns of `rows`."""

    text: str
    words: list[str]
    drafted: list[int]
    verified: list[int]
    accepted: list[int]
    gained: list[int]


def told(name: str, phase: str) -> list[Told]:
    """What is told of a phase, round by round."""
    trace = recorded(name)
    found = []
    for number, at, text, words in described(name):
        if at == phase:
            here = trace.index.rows_of(number)
            columns = (trace.rows[column][here].tolist() for column in Told._fields[2:])
            found.append(Told(text, words, *columns))
    return found


# ---------------------------------------------------------------- the film


@selected
def test_fates_stand_in_the_order_of_the_cards(name):
    """The drafts that are verified, the token behind them, and the drafts that are not."""
    trace = recorded(name)
    entries = [row for each in filmed(name)["rounds"] for row in each["rows"]]
    fates = draft_fates(trace).tolist()
    seen = set()
    for entry, of_drafts in zip(entries, fates, strict=True):
        drafted, verified = entry["drafted"], entry["verified"]
        found = [FATES[fate] for fate in entry["fates"]]
        assert len(found) == drafted + 1
        if not entry["gained"]:
            continue
        assert found[:verified] == [FATES[fate] for fate in of_drafts[:verified]]
        assert found[verified + 1 :] == ["unverified"] * (drafted - verified)
        behind = FATES[of_drafts[verified]]
        assert found[verified] == ("unreached" if behind == "unverified" else behind)
        assert (found[verified] == "bonus") == (entry["accepted"] == verified < entry["gained"])
        seen.add((found[verified], verified < drafted))
    assert {("bonus", True), ("unreached", True)} <= seen


@selected
def test_scores_and_capacity_are_those_of_the_record(name):
    trace = recorded(name)
    scores = trace.rows["scores"]
    found = filmed(name)["rounds"]
    assert [each["capacity"] for each in found] == trace.rounds["capacity"].tolist()
    entries = [row for each in found for row in each["rows"]]
    for entry, values in zip(entries, scores[:, : scores.shape[1]], strict=True):
        wanted = [float(f"{value:.4g}") for value in values[: entry["drafted"]].tolist()]
        assert entry["scores"] == wanted
    assert any(np.diff(entry["scores"]).any() for entry in entries if entry["drafted"] > 1)


def test_scores_that_are_not_finite_stay_out_of_the_json():
    scores = np.full((6, 2), np.nan, np.float32)
    scores[0] = -np.inf, -1.23456
    scores[1] = np.inf, np.nan
    told = film(replace(TRACE, rows=TRACE.rows | {"scores": scores}))
    json.dumps(told, allow_nan=False)
    first, second = told["rounds"][0]["rows"]
    assert first["scores"] == [None, -1.235]
    assert "scores" not in second


def test_a_run_without_a_selector_carries_nothing_of_it():
    for name in ("inplace", "lookup"):
        found = filmed(name)["rounds"]
        assert not any("capacity" in each for each in found)
        assert not any("scores" in row for each in found for row in each["rows"])
        kinds = {run[2] for lane in filmed(name)["lanes"] for run in lane if isinstance(run, list)}
        assert KINDS.index("unverified") not in kinds


# ---------------------------------------------------------------- its sentences


@selected
def test_sentences_about_a_selection_are_sentences(name):
    for _, _, sentences, rows in described(name, violations=True):
        assert len(sentences) <= MAX_LETTERS
        assert re.fullmatch(r"[A-Z][^\n]*\.", sentences)
        for words in (sentences, *rows):
            plural = r"(?<!to )\b1 (rows|drafts|tokens|verified drafts)\b"
            zero = r"\b0 drafts?\b|\bNone\b(?! of)|nan"
            assert not re.search(f"{plural}|{zero}", words), words


@selected
def test_the_draft_says_how_many_are_to_be_verified(name):
    partial = 0
    for text, words, drafted, verified, _, _ in told(name, "draft"):
        if verified == drafted:
            assert "verified" not in " ".join([text, *words])
            continue
        partial += 1
        of_these = re.search(
            r"; (\d+|none) of these (\d+) drafts? (?:is|are) to be verified\.", text
        )
        assert of_these.groups() == (str(sum(verified) or "none"), str(sum(drafted)))
        for phrase, read, number in zip(words, verified, drafted, strict=True):
            if number:
                assert phrase.startswith(f"{read or 'none'} of {number} draft")
                assert "to be verified" in phrase
    assert partial > 3


@selected
def test_the_capacity_is_told_with_what_it_is_spent_on(name):
    found = set()
    for phase in ("draft", "verify"):
        rounds = zip(told(name, phase), recorded(name).rounds["capacity"].tolist(), strict=True)
        for (text, _, drafted, verified, _, _), capacity in rounds:
            shares = {row: read for row, read in enumerate(verified) if drafted[row] > 0}
            used = sum(shares.values())
            if verified == drafted:
                assert "capacity" not in text
                continue
            plural = "" if capacity == 1 else "s"
            whole = f"he round's capacity of {capacity} draft{plural}"
            if used == capacity:
                assert f"T{whole} is spent: " in text
            elif used:
                assert f"Of t{whole}, {used} " in text
            else:
                assert f"None of t{whole} is used." in text
            found.add((used > 0) + (used == capacity))
            if apart := re.search(r"rows get (\d+) \(row (\d+)\) to (\d+) \(row (\d+)\)", text):
                fewest, worst, most, best = map(int, apart.groups())
                assert shares[worst] == fewest == min(shares.values())
                assert shares[best] == most == max(shares.values())
            elif used:
                assert len(set(shares.values())) == 1
    assert found == ({0, 1} if name == "threshold" else {2})


@selected
def test_the_verification_says_how_many_tokens_it_really_reads(name):
    feeds = recorded(name).feeds
    partial = 0
    for number, (text, words, drafted, verified, _, _) in enumerate(told(name, "verify")):
        fed = (feeds["round"] == number) & (feeds["phase"] == VERIFY) & (feeds["model"] == 0)
        if verified == drafted:
            assert "in all" not in text
            continue
        partial += 1
        tokens = int(fed.sum())
        assert f", {tokens} token{'' if tokens == 1 else 's'} in all, over " in text
        for phrase, read, of in zip(words, verified, drafted, strict=True):
            if of:
                assert f" and {read or 'none'} of its {of} draft" in phrase
    assert partial > 3


@selected
def test_slots_behind_a_row_s_verified_drafts_are_unused(name):
    """Asked for sentence by sentence, since this one is the first that is left out."""
    trace = recorded(name)
    partial = 0
    for number, scene in enumerate(scenes(name)):
        here = trace.rows["round"] == number
        ends = trace.rows["pending"][here] + trace.rows["verified"][here]
        unused = int((scene.slots - 1 - ends).clip(0).sum())
        found = re.search(r"(\d+) after a row's end", " ".join(BATCH_WORDS["verify"](scene)))
        assert (int(found[1]) if found else 0) == unused
        partial += scene.selects and len(set(ends.tolist())) > 1
    assert partial > 3


@selected
def test_the_acceptance_counts_verified_drafts(name):
    seen = set()
    for text, words, *table in told(name, "accept"):
        working = [row for row in zip(*table, strict=True) if row[3]]
        if all(verified == drafted for drafted, verified, *_ in working):
            assert "verified draft" not in text
            continue
        read = [verified for _, verified, *_ in working]
        if not any(read):
            assert text.startswith("No draft was verified: ")
            seen.add("none")
            continue
        span = f"{min(read)}" if min(read) == max(read) else f"{min(read)} to {max(read)}"
        assert f" of {span} verified draft" in text
        full = sum(accepted == verified > 0 for _, verified, accepted, _ in working)
        if said := re.search(r"All verified drafts were accepted in (\d+) of (\d+) rows", text):
            assert (int(said[1]), int(said[2])) == (full, len(working))
            seen.add("full")
        for phrase, verified, accepted, gained in zip(words, *table[1:], strict=True):
            if gained and verified:
                assert phrase.startswith(f"accepted {accepted} of {verified} verified draft")
            elif gained:
                assert phrase.startswith("none of its drafts verified, gained 1 token")
        seen.add("some")
    assert seen >= ({"none", "some"} if name == "threshold" else {"full", "some"})
