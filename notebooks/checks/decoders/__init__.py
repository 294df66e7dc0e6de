"""Decoders with a fault each, for readers of 16_debug and 19_capstone to find; `common` is right.

Contract: a decoder is a file of its own, written with torch and transformers alone, as its users
write them. `decode(target, draft, prompts, ...)` returns the new tokens of each prompt.
"""
