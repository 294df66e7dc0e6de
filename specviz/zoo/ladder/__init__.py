"""A ladder of drafts for the embedded target: sizes, and marks of training tokens."""
