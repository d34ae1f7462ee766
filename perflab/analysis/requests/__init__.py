"""Measured requests and the engine steps they lived through, and what made slow ones slow."""
