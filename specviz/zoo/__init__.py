"""The embedded pair: corpus, training and weights. `specviz train` runs the training."""
