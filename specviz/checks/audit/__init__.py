"""Judge two sets of outputs of anybody's decoders."""
