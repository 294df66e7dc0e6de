"""Plausible wrong answers to the exercises of 19_capstone: its solution with a place changed."""

import re
import tempfile
from pathlib import Path

SOLUTION = Path(__file__).parents[2] / "notebooks" / "solutions" / "19_capstone.py"
COUNT = "            count = max(lengths[fresh[0]] - 1, 1)"


def steps():
    """Return the solution's cells of code, without the calls of checks."""
    text = SOLUTION.read_text(encoding="utf-8")
    code = [cell for cell in re.split(r"(?m)^# %%.*$", text)[1:] if "\n# **" not in cell[:6]]
    return [re.sub(r"(?m)^(?:assert|board =).*$", "", cell) for cell in code]


def changed(last, old, new):
    """Return the decoder of the step that defines `last`, with one place of it changed."""
    names = {}
    for cell in steps():
        if last not in cell:
            exec(compile(cell, f"<{last}>", "exec"), names)
            continue
        assert cell.count(old) == 1, (old, cell.count(old))
        exec(compile(cell.replace(old, new), f"<{last}>", "exec"), names)
        return names["decode"]
    raise AssertionError(f"no step defines {last}")


def alone(old="    a = 0\n", new="    a = 0\n"):
    """Return the decoder of milestone 1, one row at a time."""
    return changed("def one_row", old, new)


def batched(old, new):
    """Return the decoder of milestone 2."""
    return changed("class Batch", old, new)


def slow(target, draft, prompts, K=12, max_new_tokens=32, eos=2, batch_size=8):
    """Right, one row at a time, with drafts that are mostly rejected."""
    return alone()(target, draft, prompts, K, max_new_tokens, eos)


EVERY_DRAFT = (
    "    while a < len(drafts) and drafts[a] == choices[a]:\n        a += 1\n",
    "    a = len(drafts)\n",
)
UNREAD = ("longest = max([int(", "longest = min([int(")
PLACES = "        position_ids=positions,\n"
BOARD = str(Path(tempfile.mkdtemp()) / "capstone.csv")
CASE = "decode(pair.target, pair.draft, [[ ... "  # to repeat
WRONG = {
    "budget": {
        "expected 55, got 56": [(28 + 24 + 4, [10, 11])],
        "the draft reads first, for n = 12": [(28 + 24 + 3, [11]), (28 + 24 + 3, [11, 12])],
    },
    "alone": {
        # After the last round both caches keep rejected drafts.
        f"{CASE}since round ... mask:": [
            alone("            cut(cache, len(tokens) - 1)", "            cut(cache, len(tokens))")
        ],
        f"{CASE}since round ... bonus:": [
            alone("    return choices[: a + 1]", "    return [*choices[:a], (drafts + choices)[a]]")
        ],
        f"{CASE}since round ... acceptance:": [alone(*EVERY_DRAFT)],
        f"{CASE}since round ... eos:": [
            alone("            if token == eos or len", "            if len")
        ],
        f"{CASE}since round ... budget:": [
            alone("== len(prompt) + max_new_tokens", "== len(prompt) + max_new_tokens + 1")
        ],
        "it stopped with": [
            alone("tokens[cache.get_seq_length() :]", "tokens[cache.get_seq_length() + 9 :]")
        ],
        "tokens a round": [alone("    a = 0\n", "    a = 0\n    drafts = []\n")],
    },
    "batched": {
        f"{CASE}since round ... positions:": [batched(PLACES, "")],
        f"{CASE}since round ... mask:": [
            batched("device) > positions[:, :, None]", "device) > positions[:, :, None] + 1")
        ],
        f"{CASE}since round ... kv:": [batched(*UNREAD)],
        f"{CASE}since round ... lengths:": [
            batched(
                "rows[:, None], positions + 1] = choices", "rows[:, None], positions] = choices"
            )
        ],
        f"{CASE}since round ... eos:": [
            batched("                if token == eos or len", "                if len")
        ],
        "let a prompt take the place": [
            batched(
                "        fresh = fresh[: len(self.waiting)]",
                "        fresh = fresh[: len(self.waiting) * (len(fresh) == len(self.request))]",
            )
        ],
        "the target decodes 1 rows": [
            batched("    size = min(batch_size, len(prompts))", "    size = 1")
        ],
    },
    "fast": {
        "all texts are right, and it is not faster": [(slow, BOARD)],
        "a speed counts only if all texts are right": [(alone(*EVERY_DRAFT), BOARD)],
    },
    "colleague": {
        f"{CASE}since round ... kv:": [
            (COUNT, COUNT),
            (COUNT, "            count = min(lengths[row] for row in fresh)"),
            (COUNT, "            count = lengths[fresh[-1]]"),
        ],
        "old must occur once": [("count = lengths[0]", "count = 1")],
    },
}
# The text is right, and the check remarks this.
REMARKED = {
    "positions": batched(PLACES, "        position_ids=positions + 1,\n"),
    "read again": alone(
        "            cut(cache, len(tokens) - 1)", "            cut(cache, len(tokens) - 2)"
    ),
}
# One mask for all queries of a row, that of the last.
SHARED_MASK = batched(
    "        attention_mask=mask[:, None],\n", "        attention_mask=mask[:, None, -1:],\n"
)
