"""A pair of models: loading them, and refusing what cannot be decoded exactly."""
