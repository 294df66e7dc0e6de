"""What a round costs: model shapes, ceilings, roofline, memory, and fits to measured times."""
