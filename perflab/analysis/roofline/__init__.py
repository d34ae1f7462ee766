"""Work against the peaks of the GPU, and what bounds a phase."""
