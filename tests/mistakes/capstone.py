"""Plausible wrong answers to the exercises of 19_capstone.

ALONE and BATCHED have the solution with a place of it changed, by what the check must name. All of
them are tried in test_capstone.py, and two of each in test_exercises.py. MASK is one mask for all
queries of a row, that of the last.
"""

import re
import tempfile
from pathlib import Path

SOLUTION = Path(__file__).parents[2] / "notebooks" / "solutions" / "19_capstone.py"
COUNT = "            count = max(lengths[fresh[0]] - 1, 1)"


def steps() -> list[str]:
    """Return the solution's cells of code, without the calls of checks."""
    text = SOLUTION.read_text(encoding="utf-8")
    code = [cell for cell in re.split(r"(?m)^# %%.*$", text)[1:] if "\n# **" not in cell[:6]]
    kept = []
    for cell in code:
        lines = [line for line in cell.splitlines() if not re.match(r"assert|board =", line)]
        kept.append("\n".join(lines))
    return kept


def changed(last: str, old: str, new: str):
    """Return the decoder of the step that defines `last`, with one place of it changed."""
    names: dict = {}
    for cell in steps():
        is_last = last in cell
        if is_last:
            assert cell.count(old) == 1, (old, cell.count(old))
            cell = cell.replace(old, new)
        exec(compile(cell, f"<{last}>", "exec"), names)
        if is_last:
            return names["decode"]
    raise AssertionError(f"no step defines {last}")


def first(old: str, new: str):
    return changed("def one_row", old, new)


def second(old: str, new: str):
    return changed("class Batch", old, new)


def slow(target, draft, prompts, K=12, max_new_tokens=32, eos=2, batch_size=8):
    """Right, one row at a time, with drafts that are mostly rejected."""
    decode = first("    a = 0\n", "    a = 0\n")
    return decode(target, draft, prompts, K, max_new_tokens, eos)


ALONE = {
    # After the last round both caches keep rejected drafts.
    "mask:": ("            cut(cache, len(tokens) - 1)", "            cut(cache, len(tokens))"),
    "bonus:": ("    return choices[: a + 1]", "    return [*choices[:a], (drafts + choices)[a]]"),
    "acceptance:": (
        "    while a < len(drafts) and drafts[a] == choices[a]:\n        a += 1\n",
        "    a = len(drafts)\n",
    ),
    "eos:": ("            if token == eos or len", "            if len"),
    "budget:": ("== len(prompt) + max_new_tokens", "== len(prompt) + max_new_tokens + 1"),
    "it stopped with": ("tokens[cache.get_seq_length() :]", "tokens[cache.get_seq_length() + 9 :]"),
    "tokens a round": ("    a = 0\n", "    a = 0\n    drafts = []\n"),
}
BATCHED = {
    "positions:": ("        position_ids=positions,\n", ""),
    "mask:": ("device) > positions[:, :, None]", "device) > positions[:, :, None] + 1"),
    "kv:": ("longest = max([int(", "longest = min([int("),
    "lengths:": (
        "        self.tokens[rows[:, None], positions + 1] = choices\n",
        "        self.tokens[rows[:, None], positions] = choices\n",
    ),
    "eos:": ("                if token == eos or len", "                if len"),
    "let a prompt take the place": (
        "        fresh = fresh[: len(self.waiting)]",
        "        fresh = fresh[: len(self.waiting)] if len(fresh) == len(self.request) else []",
    ),
    "the target decodes 1 rows": ("    size = min(batch_size, len(prompts))", "    size = 1"),
}
# By what the check remarks, though the texts are right.
REMARKED = {
    "positions": ("        position_ids=positions,\n", "        position_ids=positions + 1,\n"),
    "read again": (
        "            cut(cache, len(tokens) - 1)",
        "            cut(cache, len(tokens) - 2)",
    ),
}
MASK = ("        attention_mask=mask[:, None],\n", "        attention_mask=mask[:, None, -1:],\n")

BOARD = str(Path(tempfile.mkdtemp()) / "capstone.csv")
WRONG = {
    "budget": [(28 + 24 + 4, [10, 11]), (28 + 24 + 3, [11]), (28 + 24 + 3, [11, 12])],
    "alone": [(first(*ALONE["mask:"]),), (first(*ALONE["bonus:"]),)],
    "batched": [(second(*BATCHED["kv:"]),), (second(*BATCHED["positions:"]),)],
    "fast": [(slow, BOARD), (first(*ALONE["acceptance:"]), BOARD)],
    "colleague": [
        (COUNT, COUNT),
        (COUNT, "            count = min(lengths[row] for row in fresh)"),
        (COUNT, "            count = lengths[fresh[-1]]"),
        ("count = lengths[0]", "count = 1"),
    ],
}
