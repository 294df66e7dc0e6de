"""Judge decoders of others by watching the models that they call."""
