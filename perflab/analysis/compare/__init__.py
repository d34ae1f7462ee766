"""Two sides against each other: what differs, what changed inside a step, and what requests saw, with intervals."""
