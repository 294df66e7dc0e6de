"""Other people's servers: their texts, their counters, and their logs of each request.

`fetch_outputs` collects texts over the OpenAI protocol, `read_page` reads a Prometheus page, and
`read_log` reads statistics of each request, which `acceptance_tables` turns into tables to replay.
"""

from specviz.servers.client import fetch_outputs
from specviz.servers.log import ServedRequest, ServerLog, read_log
from specviz.servers.metrics import Counters, read_page
from specviz.servers.traffic import acceptance_tables, measured_acceptance
from specviz.util.errors import ServerError

__all__ = [
    "Counters",
    "ServedRequest",
    "ServerError",
    "ServerLog",
    "acceptance_tables",
    "fetch_outputs",
    "measured_acceptance",
    "read_log",
    "read_page",
]
