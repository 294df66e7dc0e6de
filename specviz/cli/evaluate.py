"""`specviz evaluate`: what a pair reaches on files that it was not trained on."""

import argparse

from specviz.prompts import load_prompts
from specviz.studies.arguments import add_lengths, add_models, lengths, load_models
from specviz.studies.output import print_table
from specviz.zoo.measure import measure_pair


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    add_lengths(parser, max_new_tokens=128)


def run(options: argparse.Namespace) -> None:
    print_table(measure_pair(load_models(options), load_prompts(), **lengths(options)))
