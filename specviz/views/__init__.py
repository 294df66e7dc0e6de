"""Pictures of recorded runs. Everything here reads a record or a result; nothing runs a model."""
