"""Charts of a record or a result."""

from specviz.views.charts.picture import batch_picture as batch_picture
from specviz.views.charts.runs import PHASE_LOOKS as PHASE_LOOKS
from specviz.views.charts.runs import acceptance_by_position as acceptance_by_position
from specviz.views.charts.runs import acceptance_map as acceptance_map
from specviz.views.charts.runs import pick_ragged_round as pick_ragged_round
from specviz.views.charts.runs import stage_bars as stage_bars
