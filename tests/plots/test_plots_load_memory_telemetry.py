import pandas as pd
import pytest

from perflab import schema, units
from perflab.plots import style
from perflab.plots.memory import plot_memory
from perflab.plots.requests import plot_load_over_time, plot_requests, tokens_of_chunks
from perflab.plots.telemetry import metric_label, plot_samples, plot_telemetry

S = units.NS_PER_S
REQUESTS = schema.conform(
    pd.DataFrame(
        [
            (0, 5 * S, 6 * S, 9 * S, 16, 3, "ok"),
            (1, 5 * S, 7 * S, 9 * S, 16, 3, "ok"),
            (2, 8 * S, None, None, 16, None, "failed"),
            (3, None, 9 * S, 9 * S, 16, 1, "ok"),
        ],
        columns=schema.TABLES["requests"].names,
    ),
    "requests",
)
CHUNKS = schema.conform(
    pd.DataFrame([(0, 0, 6 * S, None), (0, 1, 9 * S, 2), (1, 0, 7 * S, 1)], columns=schema.TABLES["chunks"].names),
    "chunks",
)


def test_requests_wait_then_stream() -> None:
    ax = plot_requests(REQUESTS)
    waiting, streaming = (c.get_segments() for c in ax.collections[:2])
    assert [list(map(tuple, s)) for s in waiting[:2]] == [[(0.0, 0.0), (1.0, 0.0)], [(0.0, 1.0), (2.0, 1.0)]]
    assert [list(map(tuple, s)) for s in streaming[:2]] == [[(1.0, 0.0), (4.0, 0.0)], [(2.0, 1.0), (4.0, 1.0)]]
    title = style.title_of(style.figure_of(ax))
    assert title == "Requests spend 37.5 % of their life waiting for the first token (median); 1 failed"
    assert ax.get_xlabel() == "time since the first request (s)"
    assert any("1 without arrival time are not shown" in t.get_text() for t in style.figure_of(ax).texts)


def test_load_over_time_counts_requests_in_flight_and_tokens() -> None:
    figure = plot_load_over_time(REQUESTS, CHUNKS, of="run a")
    flight, tokens = figure.axes[1:]
    assert "at most 3" in flight.get_ylabel()
    assert "mean 1" in tokens.get_ylabel()
    area = sum(p.get_data().values.sum() * 4 / 60 for p in tokens.patches[:1])
    assert area == pytest.approx(4.5)
    assert any(t.get_text().startswith("run a: ") for t in figure.texts)


def test_a_chunk_is_not_a_token() -> None:
    """Ten tokens came in two chunks: five each, unless the result tells better."""
    one = REQUESTS.head(1).assign(output_tokens=pd.array([10], "Int64"))
    two = CHUNKS[CHUNKS["request_id"] == 0]
    assert tokens_of_chunks(one, two.assign(token_count=pd.array([None, None], "Int64"))).tolist() == [5.0, 5.0]
    assert tokens_of_chunks(one, two.assign(token_count=pd.array([1, 9], "Int64"))).tolist() == [1.0, 9.0]
    unknown = one.assign(output_tokens=pd.array([None], "Int64"))
    assert tokens_of_chunks(unknown, two).tolist() == [pytest.approx(float("nan"), nan_ok=True), 2.0]
    nothing = plot_load_over_time(unknown, two.assign(token_count=pd.array([None, None], "Int64")))
    assert "not measured" in nothing.axes[2].get_ylabel()


def test_without_arrival_times_that_is_said() -> None:
    unknown = REQUESTS.assign(arrival_ns=pd.array([None] * 4, "Int64"))
    assert style.title_of(plot_load_over_time(unknown, CHUNKS)) == "When requests were sent was not recorded"


def test_one_request_is_enough() -> None:
    plot_load_over_time(REQUESTS.head(1), CHUNKS.head(1)).canvas.draw()


def memory(*rows: tuple[int, str, float]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["rank", "component", "gib"])
    return schema.conform(frame.assign(bytes=(frame["gib"] * units.GIB).astype(int), source="log"), "memory")


def test_memory_fills_the_device() -> None:
    ax = plot_memory(memory((0, "weights", 15), (0, "kv_cache", 60), (0, "free", 25)))
    assert [p.get_width() for p in ax.patches] == pytest.approx([15, 60, 25])
    assert style.title_of(style.figure_of(ax)) == "Weights take 15.0 % and the KV cache 60.0 % of device memory"
    assert ax.get_xlabel() == "device memory (GiB)"
    assert any("KV cache  60.0 GiB" in t.get_text() for t in ax.texts)


def test_no_share_of_a_device_whose_size_is_unknown() -> None:
    ax = plot_memory(memory((0, "weights", 15), (0, "kv_cache", 60)))
    assert style.title_of(style.figure_of(ax)) == "Weights take 15.0 GiB and the KV cache 60.0 GiB"


def test_unknown_memory_is_said() -> None:
    assert style.title_of(style.figure_of(plot_memory(schema.empty("memory")))) == "How memory is used is not known"


def samples(metric: str, *values: float, labels: str = "") -> pd.DataFrame:
    return pd.DataFrame({"t_ns": range(0, S * len(values), S), "metric": metric, "labels": labels, "value": values})


def test_a_share_is_shown_in_percent_and_never_as_a_fraction() -> None:
    ax = plot_samples(samples("vllm:kv_cache_usage_perc", 0.1, 0.41), metric="vllm:kv_cache_usage_perc")
    assert list(ax.lines[0].get_ydata()) == pytest.approx([10.0, 41.0])
    assert ax.get_ylabel() == "kv cache usage (%)"
    assert style.title_of(style.figure_of(ax)) == "Kv cache usage from 10 to 41 %"


def test_lines_of_several_gpus_are_named_at_their_ends() -> None:
    both = pd.concat([samples("gpu_power_watts", 300, 400, labels=f"gpu={i}") for i in (0, 1)])
    ax = plot_samples(both, metric="gpu_power_watts")
    names = [t for t in ax.texts if t.get_text().startswith("gpu=")]
    style.figure_of(ax).canvas.draw()
    assert abs(names[0].get_window_extent().y0 - names[1].get_window_extent().y0) >= 8


def test_telemetry_has_a_panel_a_metric_on_one_time_axis() -> None:
    both = pd.concat([samples("num_requests_running", 1, 4), samples("gpu_memory_bytes", units.GIB, 2 * units.GIB)])
    figure = plot_telemetry(both, metrics={"gpu_memory_bytes": "GPU memory", "absent": "x", "num_requests_running": ""})
    assert [ax.get_ylabel() for ax in figure.axes] == ["GPU memory\n(GiB)", "num requests running"]
    assert list(figure.axes[0].lines[0].get_ydata()) == [1.0, 2.0]
    assert style.title_of(plot_telemetry(both.head(0))) == "No telemetry was recorded"


def test_a_pause_breaks_the_line_and_what_was_measured_is_shaded() -> None:
    times = [0, 1, 2, 30, 31]
    gappy = pd.DataFrame({"t_ns": [t * S for t in times], "metric": "m_percent", "labels": "", "value": [5.0] * 5})
    spans = pd.DataFrame({"load": ["c1"], "start_ns": [0], "end_ns": [20 * S]})
    figure = plot_telemetry(gappy, spans=spans, title="Finding", of="run a")
    assert [v != v for v in figure.axes[0].lines[0].get_ydata()] == [False, False, False, True, False, False]
    assert [t.get_text() for t in figure.axes[0].texts] == ["c1"]
    assert len(figure.axes[0].patches) == 1
    assert style.title_of(figure) == "Finding"
    assert any(t.get_text() == "run a: 5 samples over 31 s; shaded: measured" for t in figure.texts)


@pytest.mark.parametrize(("metric", "unit"), [("gpu_clock_mhz", "MHz"), ("sm_percent", "%"), ("preemptions", "")])
def test_units_come_from_the_name(metric: str, unit: str) -> None:
    assert metric_label(metric)[1] == unit
