"""Runs to look at from all sides in JupyterLab: breakdown, steps, timeline, kernels and requests, linked."""

from perflab.explorer.widget import Explorer, explore

__all__ = ["Explorer", "explore"]
