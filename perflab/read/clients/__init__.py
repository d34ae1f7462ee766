"""Results of other benchmark clients: one module a client, all giving `perflab.read.bench_result.BenchResult`.

What a file does not tell is None or NA. Where a client's definition is not vLLM's, its figures are converted if the
file allows it, else left out or marked (`BenchResult.marks`, codes of `perflab/knowledge/clients.toml`).
"""
