"""Executing notebooks with papermill and rendering them as self-contained HTML."""

from perflab.report.composing import report
from perflab.report.execution import execute
from perflab.report.index_page import report_folder
from perflab.report.rendering import render

__all__ = ["execute", "render", "report", "report_folder"]
