"""The embedded pair: its corpus, its training, its weights. Training is run by `specviz train`."""
