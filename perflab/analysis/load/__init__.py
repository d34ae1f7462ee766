"""Load: a measured point over time, what limits it, and throughput against latency over loads."""
