"""What ranks do with one another: collectives, their sizes, clocks, and who is waited for."""
