"""Plausible wrong answers to the exercises of 14_memory."""


def one_of_both(rows, prompt, new, K, layers, kv_heads, head_dim, size):
    """Keys without values."""
    return rows * (prompt + new + K + 1) * layers * kv_heads * head_dim * size


def text_alone(rows, prompt, new, K, layers, kv_heads, head_dim, size):
    """No slot for drafts."""
    return 2 * rows * (prompt + new) * layers * kv_heads * head_dim * size


def no_bonus(rows, prompt, new, K, layers, kv_heads, head_dim, size):
    return 2 * rows * (prompt + new + K) * layers * kv_heads * head_dim * size


def one_layer(rows, prompt, new, K, layers, kv_heads, head_dim, size):
    return 2 * rows * (prompt + new + K + 1) * kv_heads * head_dim * size


def as_in_the_notebook(budget, target_weights, draft_weights, target_row, draft_row):
    return (budget - target_weights - draft_weights) // (target_row + draft_row)


def with_the_weights(budget, target_weights, draft_weights, target_row, draft_row):
    return (budget - target_weights - draft_weights) // target_row


def with_the_rows(budget, target_weights, draft_weights, target_row, draft_row):
    return (budget - target_weights) // (target_row + draft_row)


def without_weights(budget, target_weights, draft_weights, target_row, draft_row):
    return budget // target_row


WRONG = {
    "lever": [("K",), ("chunks",), ("logits",), ("accept",), ("B",)],
    "kv_bytes": [(one_of_both,), (text_alone,), (no_bonus,), (one_layer,)],
    "rows_alone": [
        (as_in_the_notebook,),
        (with_the_weights,),
        (with_the_rows,),
        (without_weights,),
    ],
    "reading": [(11, 35, 75), (12, 36, 75), (12, 35, 76), (12, 36, 76), (13, 35, 75), (12, 12, 75)],
}
