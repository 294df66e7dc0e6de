"""Plausible wrong answers to the exercises of 14_memory."""


def kv_bytes(rows, prompt, new, K, layers, kv_heads, head_dim, size, *, more=1, both=2):
    return both * rows * (prompt + new + K + more) * layers * kv_heads * head_dim * size


WRONG = {
    "lever": {
        "K/V of K + 1 new tokens in a round": ["K"],
        "while a round drafts": ["draft"],
        "choose one of K, chunks": ["B"],
    },
    "kv_bytes": {
        "keys and values both count; a row has 1158 slots": [lambda *run: kv_bytes(*run, both=1)],
        "expected 5039616000, got": [
            lambda *run: kv_bytes(*run, more=-run[3]),  # no slot for drafts
            lambda *run: kv_bytes(*run, more=0),  # none for the bonus
            lambda *run: kv_bytes(*run) // run[4],  # of one layer
        ],
    },
    "rows_alone": {  # budget, weights of target and draft, a row of target and draft
        "without drafts has no draft model": [
            lambda budget, p, q, row, own: (budget - p - q) // (row + own),  # as in the notebook
            lambda budget, p, q, row, own: (budget - p - q) // row,
            lambda budget, p, q, row, own: (budget - p) // (row + own),
            lambda budget, p, q, row, own: budget // row,
        ]
    },
    "reading": {
        "less those that have K/V": [(11, 35, 75), (13, 35, 75), (12, 12, 75)],
        "counts the last token of the message": [(12, 36, 75), (12, 35, 76), (12, 36, 76)],
    },
}
