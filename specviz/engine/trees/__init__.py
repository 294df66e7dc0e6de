"""Token trees: drafts that branch. Pure tensor arithmetic, without models and caches."""
