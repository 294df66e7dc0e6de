"""The step-through: a film of a record, drawn in the browser."""
