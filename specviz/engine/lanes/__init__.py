"""Two sub-batches of one run: while one verifies, the other drafts (MineDraft's overlap).

Each lane is a run of its own, with its own rows, K/V and rounds. Both share the models' weights and
the prompts that wait. `admission` says who gets a prompt, `parcel` moves rows from one lane to the
other, and `turns` and `workers` let the lanes run: on one thread in turns, or on a thread each.
"""
