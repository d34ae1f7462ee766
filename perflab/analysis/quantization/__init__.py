"""Quantization: what it takes to run, what it saves, what it costs, and why."""
