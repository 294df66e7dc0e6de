"""Training of draft heads: data, the target's features, losses, measures and the shipped weights.

`specviz train --heads` runs `pipeline.train_heads`. For a target and data of one's own there is
`training.train_head`.
"""
