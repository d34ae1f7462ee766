"""perflab: where do the time and memory go in vLLM, what to change, did it help, can the answer be trusted."""

__version__ = "0.1.0"
