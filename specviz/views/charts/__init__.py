"""Charts of a run: acceptance per request and per position, time per phase, scores of drafts,
trees of drafts, lanes, memory.

Contract: each chart reads a Trace, a Result or numbers, and returns a plotly Figure of fixed size.
With the theme "auto" text takes its colour from the page around the chart; "light" and "dark" set
their own background, for files. `show` displays a chart in a notebook. Not known here: models.
"""

from specviz.views.charts.acceptance import acceptance_by_position as acceptance_by_position
from specviz.views.charts.acceptance import acceptance_map as acceptance_map
from specviz.views.charts.gantt import gantt as gantt
from specviz.views.charts.memory import MEMORY_LOOKS as MEMORY_LOOKS
from specviz.views.charts.memory import memory_bars as memory_bars
from specviz.views.charts.ragged import pick_ragged_round as pick_ragged_round
from specviz.views.charts.scores import score_map as score_map
from specviz.views.charts.stages import PHASE_LOOKS as PHASE_LOOKS
from specviz.views.charts.stages import stage_bars as stage_bars
from specviz.views.charts.trees import TREE_LOOKS as TREE_LOOKS
from specviz.views.charts.trees import token_tree as token_tree
from specviz.views.display import show as show
from specviz.views.display import to_png as to_png
