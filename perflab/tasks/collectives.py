"""How do the ranks communicate? The collectives of one profiling pass, by traces and what is known of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perflab.analysis.model.shape import DTYPE_BITS, Missing, model_shape
from perflab.analysis.ranks.communication import Communication, communication
from perflab.knowledge.thresholds import Thresholds
from perflab.read.trace import Trace


def pass_communication(
    traces: Sequence[Trace],
    kernels: Sequence[pd.DataFrame],
    steps: Sequence[pd.DataFrame],
    *,
    settings: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    thresholds: Thresholds | None = None,
) -> Communication | None:
    """The communication of the ranks that have a GPU; None where no kernel communicates.

    Parameters
    ----------
    traces, kernels, steps
        One element a rank: its trace, and its tables `kernels` with categories and `steps`. Two traces that claim to be
        the same rank give nothing, since nothing tells whose collective is whose.
    settings
        The engine's.
    config
        The model's config.json, where it is known.
    """
    on_gpu = [place for place, trace in enumerate(traces) if trace.has_gpu and not trace.is_frontend]
    if not on_gpu or len({traces[place].rank for place in on_gpu}) < len(on_gpu):
        return None
    work = [kernels[place][kernels[place]["category"] == "communication"] for place in on_gpu]
    plain = [some.astype({"name": "object", "category": "object", "kind": "object"}) for some in work]
    worlds = [traces[place].world_size for place in on_gpu]
    hidden, itemsize = _token(settings, config)
    return communication(
        pd.concat(plain, ignore_index=True),
        pd.concat([steps[place] for place in on_gpu], ignore_index=True),
        pd.concat([traces[place].messages for place in on_gpu], ignore_index=True),
        device=traces[on_gpu[0]].device_name,
        world=max((world for world in worlds if world is not None), default=None),
        settings=settings,
        hidden_size=hidden,
        itemsize=itemsize,
        thresholds=thresholds,
    )


def _token(settings: Mapping[str, Any], config: Mapping[str, Any] | None) -> tuple[int | None, int | None]:
    """Hidden size, and bytes of an element of what layers exchange; None where not known."""
    shape = model_shape(config) if config else None
    if shape is None or isinstance(shape, Missing):
        return None, None
    dtype = str(settings.get("dtype") or shape.dtype).removeprefix("torch.")
    bits = DTYPE_BITS.get(dtype) or DTYPE_BITS.get(shape.dtype)
    return shape.hidden, bits // 8 if bits else None
