"""Plausible wrong answers to the exercises of 16_debug."""

import numpy as np

RIGHT_SYMPTOMS = ["a", "d", "c", "g", "h", "f"]
KEPT = "        kept = state[:, start : len(row) - 1]"
ENTERED = "    seen[row, start:] = 1"
NEW = "            new = [*drafts[:a], choices[a]]"
DONE = "            done = new[-1] == eos or len(tokens) >= most"
CALLED = "        output = draft(ids[:, -1:], attention_mask=seen, past_key_values=cache)"


def proportional(p, q, drawn):
    """The token after a rejection is drawn from p."""
    accepted = drawn * np.minimum(1, p / q)
    return accepted + (1 - accepted.sum()) * p


def always_p(p, q, drawn):
    return p


def without_rejections(p, q, drawn):
    accepted = drawn * np.minimum(1, p / q)
    return accepted / accepted.sum()


def residual_not_normalised(p, q, drawn):
    accepted = drawn * np.minimum(1, p / q)
    return accepted + (1 - accepted.sum()) * np.maximum(p - q, 0)


def residual_of_drawn(p, q, drawn):
    accepted = drawn * np.minimum(1, p / q)
    rest = np.maximum(p - drawn, 0)
    return accepted + (1 - accepted.sum()) * rest / rest.sum()


def judged_by_drawn(p, q, drawn):
    """p, unless the draft's distribution is mistaken for q."""
    accepted = drawn * np.minimum(1, p / drawn)
    rest = np.maximum(p - q, 0)
    return accepted + (1 - accepted.sum()) * rest / rest.sum()


WRONG = {
    "symptoms": [
        # Columns of padding that are seen touch rows of one batch alone, but not all of them.
        (["a", "e", "c", "g", "h", "f"],),
        (["b", "d", "c", "g", "h", "f"],),
        (["a", "d", "b", "g", "h", "f"],),
        (["a", "d", "c", "g", "a", "f"],),
        (RIGHT_SYMPTOMS[:5],),
        (["a", "d", "c", "g", "h", "x"],),
    ],
    "repad": [
        (KEPT, KEPT),
        # Counted from the end, where rejected drafts are.
        (KEPT, "        kept = state[:, 1 - len(row) :]"),
        (KEPT, "        kept = state[:, start : start + len(row)]"),
        (KEPT, "        kept = state[:, start:]"),
        ("kept = state[:, 0 : len(row)]", "kept = state"),
        (KEPT, "        kept = state[:, start :: len(row) - 1"),
    ],
    "refill": [
        (ENTERED, ENTERED),
        (ENTERED, "    seen[row, :start] = 0"),
        (ENTERED, "    seen[row] = 0"),
        (ENTERED, "    seen[row] = torch.arange(seen.shape[1]) > start"),
        (ENTERED, "    seen[row] = 1"),
    ],
    "lookup": [
        (NEW, NEW),
        # It ends, but what follows EOS is in the text.
        (DONE, DONE.replace("new[-1] == eos", "eos in new")),
        # A prompt may contain EOS.
        (DONE, DONE.replace("new[-1] == eos", "eos in tokens")),
        (NEW, f"{NEW}\n            new = new[: new.index(eos)] if eos in new else new"),
        (DONE, "            done = len(tokens) >= most"),
        (DONE, "            done = False"),
    ],
    "emitted": [
        (proportional,),
        (always_p,),
        (without_rejections,),
        (residual_not_normalised,),
        (residual_of_drawn,),
        (judged_by_drawn,),
    ],
    "mystery": [
        (CALLED, CALLED),
        # One position for all drafts of a round.
        (
            CALLED,
            "        start = positions_of(seen)[:, -1:] * 0\n"
            "        output = draft(ids[:, -1:], seen, start, cache)",
        ),
        # The draft's last token is not read: the masks of the two caches differ.
        ("    for _ in range(K + 1):", "    for _ in range(K):"),
        # Right texts and no speculation.
        ("            a = count_accepted(drafts, chosen)", "            a = 0"),
    ],
}
