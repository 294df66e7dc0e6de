"""The public names; `__init__.py` imports each when it is first used."""

from .checks.audit.audit import audit as audit
from .checks.audit.report import Audit as Audit
from .checks.check import check_invariants as check_invariants
from .checks.compare import Comparison as Comparison
from .checks.compare import compare as compare
from .checks.sampling.audit import audit_sampling as audit_sampling
from .checks.sampling.pair import tiny_pair as tiny_pair
from .checks.sampling.report import SamplingReport as SamplingReport
from .checks.violations import Violation as Violation
from .checks.watch.report import WatchReport as WatchReport
from .checks.watch.watched import Watched as Watched
from .checks.watch.watched import watch as watch
from .engine.drafters import drafter as drafter
from .engine.drafters import drafters as drafters
from .engine.models.pair import Pair as Pair
from .engine.models.pair import load_heads as load_heads
from .engine.models.pair import load_pair as load_pair
from .engine.peak import PeakMeter as PeakMeter
from .engine.run import decode as decode
from .engine.sampling import SamplingParams as SamplingParams
from .engine.selectors import selector as selector
from .engine.selectors import selectors as selectors
from .engine.strategies import strategies as strategies
from .engine.strategies import strategy as strategy
from .generation.chat import Chat as Chat
from .generation.chat import chat as chat
from .generation.expected import ExpectedAcceptance as ExpectedAcceptance
from .generation.expected import expected_acceptance as expected_acceptance
from .generation.generate import generate as generate
from .generation.memory import Plan as Plan
from .generation.memory import plan as plan
from .generation.result import Result as Result
from .prompts import load_prompts as load_prompts
from .record.given import RoundEnd as RoundEnd
from .record.log import read_log as read_log
from .record.schema import TraceError as TraceError
from .record.trace import Trace as Trace
from .record.writer import TraceWriter as TraceWriter
from .util.levers import Levers as Levers
from .views.lab import lab as lab
from .views.stepper.widget import step_through as step_through

__version__: str
