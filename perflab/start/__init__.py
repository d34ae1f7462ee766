"""Where people begin, in JupyterLab: their own files, and experiments of their own. Widgets only; tasks do the work."""

from perflab.start.editor import experiment_editor
from perflab.start.page import own_files

__all__ = ["experiment_editor", "own_files"]
