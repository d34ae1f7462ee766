"""Every table perflab passes around: its columns, their dtypes, units and meaning.

A table is a plain `pandas.DataFrame` whose columns are listed here. `validate` checks one; `empty` makes
one without rows. Axis labels and the reference documentation are generated from these descriptions.

Times are int64 nanoseconds. Unless said otherwise they count from the Unix epoch for traces, scrapes and
anchors, and from the client's own clock (perf_counter) for benchmark results, whose origin is arbitrary.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd

from perflab.errors import SchemaError


@dataclass(frozen=True)
class Column:
    """One column: `dtype` is what pandas prints, `unit` is empty for counts and names."""

    name: str
    dtype: str
    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """One table: what a row stands for, and its columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        """The description of one column."""
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"table {self.name} has no column {name!r}; it has {', '.join(self.names)}")


_NS = "ns"
_RANK = Column("rank", "int64", "global rank of the process; 0 where there is only one")
_START = Column("start_ns", "int64", "start, nanoseconds since the epoch", _NS)
_DUR = Column("dur_ns", "int64", "duration", _NS)

CATEGORIES: tuple[str, ...] = (
    "attention", "gemm", "moe", "communication", "kv_cache", "norm_act",
    "quantize", "sampling", "embedding", "memory", "graph_opaque", "other",
)  # fmt: skip
"""What a device activity is for. `other` stays visible with its share and its largest names."""

GROUPS = MappingProxyType(
    {
        "attention": ("attention",),
        "compute": ("gemm", "moe", "norm_act", "quantize", "sampling", "embedding", "graph_opaque", "other"),
        "memory": ("kv_cache", "memory"),
        "communication": ("communication",),
    }
)
"""Reader-facing groups of categories; idle is the fifth and belongs to no category."""

PHASES: tuple[str, ...] = ("prefill", "decode", "mixed")

TABLES = MappingProxyType({table.name: table for table in (
    Table("requests", "request of one benchmark result", (
        Column("request_id", "int64", "position in the result file, from 0"),
        Column("arrival_ns", "Int64", "request sent, client clock; NA where the file does not tell", _NS),
        Column("first_token_ns", "Int64", "first token received, client clock", _NS),
        Column("finish_ns", "Int64", "last token received, client clock", _NS),
        Column("prompt_tokens", "Int64", "prompt length", "tokens"),
        Column("output_tokens", "Int64", "tokens generated", "tokens"),
        Column("status", "str", "ok, failed, or unknown"),
    )),
    Table("chunks", "streamed chunk", (
        Column("request_id", "int64", "request it belongs to"),
        Column("chunk_index", "int64", "position in the stream, from 0 (the first token)"),
        Column("arrival_ns", "int64", "received, client clock", _NS),
        Column("token_count", "Int64", "tokens in the chunk; NA when unknown", "tokens"),
    )),
    Table("kernels", "device activity (kernel, copy, set)", (
        _RANK,
        Column("device", "int64", "device index"),
        Column("stream", "int64", "stream id"),
        Column("correlation_id", "int64", "id shared with the launch; -1 when absent"),
        Column("graph_id", "int64", "CUDA graph id, or the launch's correlation id where kernels share it; -1 outside"),
        Column("name", "category", "kernel name as recorded"),
        Column("kind", "category", "kernel, memcpy, memset, or cpu_op for a CPU engine's operators"),
        Column("bytes", "Int64", "bytes copied or set; NA for kernels", "bytes"),
        Column("category", "category", "one of schema.CATEGORIES"),
        _START, _DUR,
    )),
    Table("launches", "host call that launches device work or waits for it", (
        _RANK,
        Column("process", "int64", "process id"),
        Column("thread", "int64", "thread id"),
        Column("correlation_id", "int64", "id shared with the device activity; -1 when absent"),
        Column("api_name", "category", "runtime or driver call"),
        _START, _DUR,
    )),
    Table("ranges", "annotation (record_function, NVTX)", (
        _RANK,
        Column("domain", "category", "host or device: whose timeline the times are on"),
        Column("thread", "int64", "host thread, or device stream"),
        Column("name", "category", "annotation text"),
        _START, _DUR,
    )),
    Table("steps", "engine step on one rank", (
        _RANK,
        Column("step", "int64", "number within the rank, from 0"),
        Column("phase", "category", "prefill, decode or mixed"),
        _START,
        Column("dur_ns", "int64", "to the start of the next step; for the last, to the end of its work", _NS),
        Column("forward_ns", "int64", "the annotated forward part", _NS),
        Column("prefill_requests", "Int64", "requests in prefill"),
        Column("prefill_tokens", "Int64", "prompt tokens computed", "tokens"),
        Column("decode_requests", "Int64", "requests in decode"),
        Column("decode_tokens", "Int64", "tokens decoded", "tokens"),
        Column("kv_tokens", "Int64", "tokens read from the KV cache; NA where the annotation does not tell", "tokens"),
    )),
    Table("memory", "rank x component of device memory", (
        _RANK,
        Column("component", "str", "weights, kv_cache, peak_activation, cuda_graphs, non_torch or free"),
        Column("bytes", "int64", "size", "bytes"),
        Column("source", "str", "where the figure comes from"),
    )),
    Table("breakdown", "rank x step x category", (
        _RANK,
        Column("step", "int64", "step number; -1 where no steps are known"),
        Column("phase", "category", "prefill, decode, mixed; all where no steps are known"),
        Column("category", "category", "one of schema.CATEGORIES, or idle"),
        Column("exclusive_ns", "int64", "time given to this category alone; sums to the window", _NS),
        Column("raw_ns", "int64", "plain sum of durations, overlaps counted twice", _NS),
        Column("share", "float64", "exclusive_ns over the step's duration"),
    )),
    Table("collectives", "collective x rank", (
        _RANK,
        Column("seq", "int64", "number of the collective, the same on all ranks it was matched on; -1 unmatched"),
        Column("step", "int64", "step of the first rank it was matched on; -1 where no steps are known"),
        Column("phase", "category", "prefill, decode, mixed; all where no steps are known"),
        Column("op", "category", "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv or other"),
        Column("by", "category", "who does it: nccl, custom, multimem, ...; other where the name is not known"),
        Column("name", "category", "kernel name as recorded"),
        Column("ranks", "int64", "ranks it was matched on; 1 unmatched"),
        Column("group_size", "Int64", "ranks that take part; NA where nothing tells"),
        Column("bytes", "Int64", "size of the message as nccl-tests count it; NA where nothing tells", "bytes"),
        Column("bytes_source", "str", "arguments, shape, inferred, or empty"),
        _START, _DUR,
        Column("wait_ns", "Int64", "duration less that of the rank that arrived last; NA unmatched", _NS),
        Column("transfer_ns", "Int64", "duration on the rank that arrived last; NA unmatched", _NS),
    )),
    Table("messages", "kernel of a collective whose message the trace describes", (
        _RANK,
        Column("correlation_id", "int64", "as in table kernels"),
        Column("call", "str", "the collective, or the operator, as recorded"),
        Column("in_bytes", "Int64", "what this rank puts in", "bytes"),
        Column("out_bytes", "Int64", "what this rank gets; NA where only the input's shape is known", "bytes"),
        Column("tokens", "Int64", "rows of a two-dimensional input: tokens of the batch, padding included", "tokens"),
        Column("group", "str", "ranks of the process group, comma separated; empty where not told"),
        Column("group_size", "Int64", "ranks in the process group; NA where not told"),
        Column("source", "str", "arguments (of c10d), or shape (of an operator)"),
    )),
    Table("attribution", "device activity whose operator, part and layer are sought", (
        _RANK,
        Column("step", "int64", "step it starts in; -1 outside, or where no steps are known"),
        Column("phase", "str", "prefill, decode or mixed; all where no steps are known; outside"),
        Column("rung", "str", "how it is known: launch, capture, teacher, position, name or none"),
        Column("operator", "str", "innermost operator it was launched from; None where not known"),
        Column("shapes", "str", "shapes of the operator's arguments as recorded; empty where not"),
        Column("module", "str", "part of the model, such as self_attn.qkv_proj; None where not known"),
        Column("module_from", "str", "what tells the part: stack, teacher or position (inferred); None"),
        Column("layer", "Int64", "layer, from 0 on this rank; NA outside layers and where not known"),
        Column("confidence", "float64", "of the operator: 1 launched, else the share that matched; NA where none"),
        Column("exclusive_ns", "int64", "time it has to itself inside steps", _NS),
    )),
    Table("samples", "one value of one metric at one time", (
        Column("t_ns", "int64", "when, nanoseconds since the epoch", _NS),
        Column("metric", "str", "canonical name"),
        Column("labels", "str", "labels as k=v, sorted, comma separated; empty where there are none"),
        Column("value", "float64", "value"),
    )),
    Table("iterations", "engine step as its server reports it", (
        Column("t_ns", "int64", "when the front end had handled the step, nanoseconds since the epoch", _NS),
        Column("monotonic_ns", "int64", "the same moment on CLOCK_MONOTONIC, the client's clock on Linux", _NS),
        Column("engine", "int64", "engine (data parallel rank)"),
        Column("front_end", "int64", "process id of the front end that wrote it"),
        Column("running", "Int64", "requests in the batch", "requests"),
        Column("waiting", "Int64", "requests waiting for room", "requests"),
        Column("deferred", "Int64", "requests waiting for something else", "requests"),
        Column("kv_usage", "float64", "share of the KV cache in use; NA where not reported"),
        Column("generated_tokens", "int64", "tokens generated", "tokens"),
        Column("prompt_tokens", "int64", "length of the prompts that were completed in this step", "tokens"),
        Column("computed_tokens", "Int64", "those of them that were computed, in this step or before", "tokens"),
        Column("cached_tokens", "Int64", "those of them that came from a cache", "tokens"),
        Column("preemptions", "int64", "requests that lost their place", "requests"),
        Column("finished", "int64", "requests that ended", "requests"),
        Column("scheduled_tokens", "Int64", "tokens computed in this step; NA unless vLLM is told to say", "tokens"),
        Column("prefill_requests", "Int64", "requests in prefill; NA like the next four", "requests"),
        Column("prefill_tokens", "Int64", "prompt tokens computed", "tokens"),
        Column("decode_requests", "Int64", "requests in decode", "requests"),
        Column("decode_tokens", "Int64", "tokens of requests in decode", "tokens"),
        Column("engine_ns", "Int64", "how long the step took in the engine", _NS),
        Column("graph", "str", "CUDA graph mode and padded size; None unless vLLM is told to say"),
        Column("record_ns", "int64", "what taking this record cost the front end", _NS),
    )),
    Table("comparison", "metric and measured point that both sides have", (
        Column("metric", "str", "name of the metric, as `tpot_p50_ms`"),
        Column("point", "str", "lengths and load"),
        Column("unit", "str", "of baseline and candidate"),
        Column("better", "str", "lower or higher"),
        Column("primary", "bool", "whether this row decides"),
        Column("baseline", "float64", "geometric mean over runs of servers"),
        Column("candidate", "float64", "the same"),
        Column("ratio", "float64", "candidate over baseline"),
        Column("ci_low", "float64", "lower end of the ratio's 95 % interval; NA below 3 runs on a side"),
        Column("ci_high", "float64", "upper end"),
        Column("n_baseline", "int64", "runs of servers"),
        Column("n_candidate", "int64", "runs of servers"),
        Column("method", "str", "of the interval: welch, bootstrap or none"),
        Column("p", "float64", "two-sided p-value of a ratio of 1"),
        Column("p_adjusted", "float64", "the same by Holm among metrics that do not decide; NA for the one that does"),
        Column("threshold", "float64", "smallest change that matters, as a share"),
        Column("verdict", "str", "better, worse, same, undecided or withheld"),
        Column("reason", "str", "why the verdict is no answer; None where it is one"),
        Column("runs_needed", "Int64", "runs a side that would decide; NA where that is not known or not asked"),
    )),
    Table("findings", "finding", (
        Column("id", "str", "stable identifier of the rule"),
        Column("severity", "str", "info, warning or critical"),
        Column("confidence", "float64", "0 to 1"),
        Column("title", "str", "the finding in one sentence"),
        Column("impact", "object", "mapping value, unit; or None"),
        Column("evidence", "object", "list of sentences"),
        Column("change", "str", "what to change"),
        Column("check", "str", "command that would confirm it"),
    )),
)})  # fmt: skip
"""All tables by name."""


def validate(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return `frame` if it is a `table`, else raise `SchemaError` naming the first thing wrong.

    Extra columns are allowed and kept. `str` columns may be object or pandas' string dtype.
    """
    for column in TABLES[table].columns:
        if column.name not in frame.columns:
            raise SchemaError(f"table {table} lacks column {column.name!r} ({column.meaning})")
        found = str(frame[column.name].dtype)
        wanted = column.dtype
        if found == wanted or (wanted == "str" and found in ("object", "str", "string")):
            continue
        raise SchemaError(f"table {table}, column {column.name!r}: dtype {found}, wanted {wanted}")
    return frame


def conform(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """A copy of `frame` with exactly the columns of `table`, in order and in their dtypes."""
    spec = TABLES[table]
    missing = [name for name in spec.names if name not in frame.columns]
    if missing:
        raise SchemaError(f"table {table} lacks column {missing[0]!r}")
    return pd.DataFrame(
        {c.name: frame[c.name].astype("object" if c.dtype == "str" else c.dtype) for c in spec.columns}
    ).reset_index(drop=True)


def empty(table: str) -> pd.DataFrame:
    """A `table` without rows."""
    return conform(pd.DataFrame({name: [] for name in TABLES[table].names}), table)


def markdown() -> str:
    """The reference of all tables as Markdown; the documentation's page of tables is this."""
    lines = ["# Tables", "", "Generated from `perflab/schema.py`; `python -m perflab.schema` prints the same.", ""]
    lines += ["Times are int64 nanoseconds; what is not measured is NA, never 0.", ""]
    for table in TABLES.values():
        lines += [f"## {table.name}", "", f"One row per {table.row}.", ""]
        lines += ["| column | dtype | unit | meaning |", "|---|---|---|---|"]
        lines += [f"| `{c.name}` | {c.dtype} | {c.unit} | {c.meaning} |" for c in table.columns]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201
