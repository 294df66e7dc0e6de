"""What the checks of the capstone do with a reader's decoder: run it, judge it, time it.

Contract: a decoder is a function `decode(target, draft, prompts, K, max_new_tokens, eos,
batch_size)` that returns the new tokens of each prompt. Nothing here prints.
"""
