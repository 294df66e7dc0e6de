"""Who decodes next, and which drafts are verified: rules that the engine and simulations share.

No module here imports torch.
"""
