"""The study of a model's quantizations: planned, made, measured, judged."""
