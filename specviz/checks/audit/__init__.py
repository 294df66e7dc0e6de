"""Judge two sets of outputs of anybody's decoders.

`reading` turns files, lists, what other tools save (`forms`) and runs into one form (`output`),
`pairing` puts both sides side by side, `target` and `forcing` score places where they part, or
`returned` does so from the log-probabilities that came with the outputs; `verdicts` judges, and
`statistics`, `report` and `audit` make the report of it.
"""
