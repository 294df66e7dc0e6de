"""Decoders with a fault each, for the reader of 16_debug to find; `common` is right.

Contract: a decoder is a file of its own, written with torch and transformers alone, as its users
write them. `decode(target, draft, prompts, ...)` returns the new tokens of each prompt.
"""
