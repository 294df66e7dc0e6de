"""Judge decoders of others that draw their tokens, by what they draw."""
