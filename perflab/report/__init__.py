"""Executing notebooks with papermill and rendering them as self-contained HTML."""
