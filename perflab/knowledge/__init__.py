"""Facts as data files, no logic: kernel categories, GPU specs, vLLM arguments and metric names by version."""
