"""The engine: the only part of specviz that runs models. It yields phase events and knows nothing of tables or pictures."""
