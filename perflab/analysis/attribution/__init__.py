"""Which operator, layer and part of the model a kernel belongs to: see `perflab.analysis.attribution.ladder`."""

from perflab.analysis.attribution.capture import Capture, captures
from perflab.analysis.attribution.host import HostSide
from perflab.analysis.attribution.ladder import RUNGS, Attribution, attribute

__all__ = ["RUNGS", "Attribution", "Capture", "HostSide", "attribute", "captures"]
