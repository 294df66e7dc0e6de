"""Plausible wrong answers to the exercises of 16_debug."""

import numpy as np

KEPT = "        kept = state[:, start : len(row) - 1]"
ENTERED = "    seen[row, start:] = 1"
NEW = "            new = [*drafts[:a], choices[a]]"
DONE = "            done = new[-1] == eos or len(tokens) >= most"
CALLED = "        output = draft(ids[:, -1:], attention_mask=seen, past_key_values=cache)"
SAME = "the target's own up to new token"


def emitted(p, q, drawn, rest, judge=None):
    """Accept by p and `judge`, and draw what was not accepted from `rest`."""
    accepted = drawn * np.minimum(1, p / (q if judge is None else judge))
    return accepted + (1 - accepted.sum()) * rest


def residual(p, q):
    rest = np.maximum(p - q, 0)
    return rest / rest.sum()


def without_rejections(p, q, drawn):
    accepted = drawn * np.minimum(1, p / q)
    return accepted / accepted.sum()


WRONG = {
    "symptoms": {
        # Columns of padding that are seen touch rows of one batch alone, but not all of them.
        "change 2 does not lead to 'e', wrong only for B > 1": [["a", "e", "c", "g", "h", "f"]],
        "change 1 does not lead to 'b', gibberish": [["b", "d", "c", "g", "h", "f"]],
        "change 3 does not lead to 'b', gibberish": [["a", "d", "b", "g", "h", "f"]],
        "change 5 does not lead to 'a', fluent": [["a", "d", "c", "g", "a", "f"]],
        "expected 6 letters, got 5": [["a", "d", "c", "g", "h"]],
        "there is no symptom 'x'": [["a", "d", "c", "g", "h", "x"]],
    },
    "repad": {
        SAME: [
            (KEPT, KEPT),
            # Counted from the end, where rejected drafts are.
            (KEPT, "        kept = state[:, 1 - len(row) :]"),
            (KEPT, "        kept = state[:, start : start + len(row)]"),
            (KEPT, "        kept = state[:, start:]"),
        ],
        "old must occur once": [("kept = state[:, 0 : len(row)]", "kept = state")],
        "stopped with SyntaxError": [(KEPT, "        kept = state[:, start :: len(row) - 1")],
    },
    "refill": {
        SAME: [
            (ENTERED, ENTERED),
            (ENTERED, "    seen[row, :start] = 0"),
            (ENTERED, "    seen[row] = 0"),
            (ENTERED, "    seen[row] = torch.arange(seen.shape[1]) > start"),
            (ENTERED, "    seen[row] = 1"),
        ]
    },
    "lookup": {
        SAME: [
            (NEW, NEW),
            # It ends, but what follows EOS is in the text.
            (DONE, DONE.replace("new[-1] == eos", "eos in new")),
            # A prompt may contain EOS.
            (DONE, DONE.replace("new[-1] == eos", "eos in tokens")),
            (DONE, "            done = len(tokens) >= most"),
        ],
        "stopped with IndexError": [
            (NEW, f"{NEW}\n            new = new[: new.index(eos)] if eos in new else new")
        ],
        "more than without drafts": [(DONE, "            done = False")],
    },
    "emitted": {
        "expected [": [
            lambda p, q, drawn: emitted(p, q, drawn, p),
            lambda p, q, drawn: p,
            without_rejections,
            lambda p, q, drawn: emitted(p, q, drawn, np.maximum(p - q, 0)),  # not scaled
            lambda p, q, drawn: emitted(p, q, drawn, residual(p, drawn)),
            # p, unless the draft's distribution is mistaken for q.
            lambda p, q, drawn: emitted(p, q, drawn, residual(p, q), judge=drawn),
        ]
    },
    "mystery": {
        "forwards of the target; 14 are enough": [
            (CALLED, CALLED),
            # One position for all drafts of a round.
            (
                CALLED,
                "        start = positions_of(seen)[:, -1:] * 0\n"
                "        output = draft(ids[:, -1:], seen, start, cache)",
            ),
            # Right texts and no speculation.
            ("            a = count_accepted(drafts, chosen)", "            a = 0"),
        ],
        # The draft's last token is not read: the masks of the two caches differ.
        "stopped with": [("    for _ in range(K + 1):", "    for _ in range(K):")],
    },
}
