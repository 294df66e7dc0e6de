"""The state of a run before its first round: empty rows, empty K/V slabs, waiting requests."""

from collections import deque
from collections.abc import Sequence

import torch

from specviz.engine.batch import Batch, Request
from specviz.engine.drafters import Drafter
from specviz.engine.features import FeatureStore
from specviz.engine.heads import DraftHead
from specviz.engine.heads.cached import CachedHead
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.deterministic import FixedModel, fixed_shape
from specviz.engine.models.pair import Pair
from specviz.engine.options import Options
from specviz.engine.sampling import Chooser
from specviz.engine.state import State
from specviz.engine.strategies import Strategy
from specviz.util.levers import NONE, Levers


def make_state(
    pair: Pair,
    options: Options,
    requests: Sequence[Request],
    strategy: Strategy,
    drafter: Drafter,
    max_draft_tokens: int,
    batch_size: int,
) -> State:
    """Return the state in which `requests` wait to be decoded.

    Strategy, drafter and batch size are passed beside `options`, because a run that is out of
    memory goes on with others. `max_draft_tokens` is 0 if the run never drafts.
    """
    rows = strategy.capacity(batch_size, len(requests))
    longest = max(len(request.prompt) + request.budget for request in requests)
    budget = max(request.budget for request in requests)
    # A round writes K + 1 tokens behind n, before the host knows how many count. Where drafts
    # branch, their models may write more.
    columns = max(max_draft_tokens, drafter.columns(max_draft_tokens)) if max_draft_tokens else 0
    slots = strategy.slots(longest, budget, columns)
    chooser = options.make_chooser()

    size = longest + max_draft_tokens + 1
    features = None
    wanted = drafter.features(pair)
    if wanted is not None:
        features = FeatureStore(wanted, rows, size, pair.target.dtype, pair.device)
    caches = _make_caches(
        pair,
        options,
        drafter,
        chooser,
        state=kept_state(strategy, drafter, options.levers or NONE),
        rows=rows,
        slots=slots,
        columns=columns,
        longest=longest,
        features=features,
    )
    return State(
        batch=Batch(rows, size, pair.device, keeps_drafts=not drafter.rereads_drafts),
        layout=strategy.layout(rows, slots, columns, pair.device, pair.max_positions),
        caches=caches,
        waiting=deque(strategy.order(requests)),
        batch_size=min(batch_size, rows),
        max_draft_tokens=max_draft_tokens,
        max_columns=columns,
        num_draft_tokens=max_draft_tokens,
        eos_token_ids=torch.tensor(pair.eos_token_ids, dtype=torch.long, device=pair.device),
        chooser=chooser,
        keep_draft=(options.levers or NONE).keep_draft and strategy.keeps_draft,
        fault=strategy.fault,
        features=features,
        levers=options.levers or NONE,
        fed_first=drafter.fed_first(max_draft_tokens),
    )


def _make_caches(
    pair: Pair,
    options: Options,
    drafter: Drafter,
    chooser: Chooser,
    *,
    state: str,
    rows: int,
    slots: int,
    columns: int,
    longest: int,
    features: FeatureStore | None,
) -> dict[str, CachedModel]:
    """Return the empty K/V slabs of the target and of the drafter's models, by name."""
    caches: dict[str, CachedModel] = {}
    for name, model in {"target": pair.target, **drafter.models(pair)}.items():
        # The draft's rounding decides the text only where acceptance weighs its probabilities.
        # Elsewhere it changes how many drafts are accepted, never which tokens are emitted.
        decides = name == "target" or chooser.weighs_drafts
        if isinstance(model, DraftHead):
            assert features is not None, "a head reads features"
            if options.deterministic and decides:
                raise ValueError(
                    "deterministic=True fixes the shape of the models' forwards, not of a draft "
                    "head's, and with this coupling the rounding of the head would decide which "
                    "drafts are accepted; pass coupling='gumbel', or drafter='model'"
                )
            caches[name] = CachedHead(model, rows, slots, pair.vocabulary_size, features)
        elif options.deterministic and decides:
            # Autoregressive decoding runs in the shape of K, too, so that texts can be compared.
            shape = fixed_shape(options.max_draft_tokens + 1, longest)
            caches[name] = FixedModel(model, rows, slots, pair.vocabulary_size, shape)
        else:
            caches[name] = CachedModel(
                model,
                rows,
                slots,
                pair.vocabulary_size,
                columns=columns,
                # A draft model goes back by single tokens, which needs the states after them.
                state=state if name == "target" else "states",
            )
    return caches


def kept_state(strategy: Strategy, drafter: Drafter, levers: Levers) -> str:
    """Return what the target keeps of its recurrences; see `Levers`."""
    # A token that is read alone leaves no inputs, and no state before it. Finished rows of a static
    # batch read theirs again, and so does a target that has run ahead of its own verification.
    reads_again = not strategy.refill or drafter.runs_target
    return "states" if reads_again else levers.state
