"""Run models: the loop and its state, sampling, strategies, drafters, K/V, and recording."""
