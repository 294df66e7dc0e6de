"""Decoders that are not ours, as the tests audit them."""
