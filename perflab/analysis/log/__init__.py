"""What an engine's log says: its periodic lines, its problems, and the remedies."""
