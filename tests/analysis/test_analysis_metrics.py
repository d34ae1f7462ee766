import pandas as pd
import pytest

from perflab.analysis.metrics import (
    bare_name,
    counter_deltas,
    counter_totals,
    gauge_statistics,
    histogram_means,
    prefix_hit_share,
    restarted,
)
from perflab.schema import conform


def scrape(*rows: tuple[str, str, float], at: int = 0) -> pd.DataFrame:
    frame = pd.DataFrame(
        [(at, f"vllm:{metric}", labels, value) for metric, labels, value in rows],
        columns=["t_ns", "metric", "labels", "value"],
    )
    return conform(frame, "samples")


def test_names_are_bare() -> None:
    assert bare_name("vllm:num_preemptions_total") == bare_name("num_preemptions") == "num_preemptions"


def test_counters_are_summed_over_engines_and_differenced() -> None:
    before = scrape(
        ("generation_tokens_total", "engine=0", 10),
        ("generation_tokens_total", "engine=1", 20),
        ("request_success_total", "engine=0,finished_reason=length,model_name=m", 1),
        ("prefix_cache_queries_total", "engine=0", 100),
        ("prefix_cache_hits_total", "engine=0", 0),
    )
    after = scrape(
        ("generation_tokens_total", "engine=0", 15),
        ("generation_tokens_total", "engine=1", 40),
        ("request_success_total", "engine=0,finished_reason=length,model_name=m", 4),
        ("request_success_total", "engine=0,finished_reason=abort,model_name=m", 1),
        ("prefix_cache_queries_total", "engine=0", 300),
        ("prefix_cache_hits_total", "engine=0", 50),
        ("num_preemptions_total", "engine=0", 7),
    )
    grown = counter_deltas(before, after)
    assert grown["generation_tokens"] == 25
    assert grown["request_success.length"] == 3
    assert grown["request_success"] == 4
    assert "num_preemptions" not in grown, "absent before: how much it grew is not known"
    assert "request_success.abort" not in grown
    assert prefix_hit_share(grown) == 0.25
    assert counter_totals(after)["num_preemptions"] == 7


def test_what_was_not_looked_up_has_no_share() -> None:
    assert prefix_hit_share({}) is None
    assert prefix_hit_share({"prefix_cache_queries": 0.0, "prefix_cache_hits": 0.0}) is None
    assert prefix_hit_share({"prefix_cache_queries": 10.0, "prefix_cache_hits": 0.0}) == 0


def test_a_restarted_server_is_noticed() -> None:
    before, after = scrape(("generation_tokens_total", "", 100)), scrape(("generation_tokens_total", "", 5))
    assert counter_deltas(before, after) == {}
    assert restarted(before, after)
    assert not restarted(after, before)


def test_shares_are_averaged_and_counts_summed() -> None:
    samples = pd.concat(
        [
            scrape(
                ("kv_cache_usage_perc", "engine=0", 0.4),
                ("kv_cache_usage_perc", "engine=1", 0.4),
                ("num_requests_running", "engine=0", 5),
                ("num_requests_running", "engine=1", 3),
                at=1,
            ),
            scrape(
                ("kv_cache_usage_perc", "engine=0", 0.9),
                ("kv_cache_usage_perc", "engine=1", 0.1),
                ("num_requests_running", "engine=0", 1),
                ("num_requests_running", "engine=1", 1),
                at=2,
            ),
        ]
    )
    found = gauge_statistics(samples).set_index("metric")
    assert found.loc["kv_cache_usage_perc", "mean"] == pytest.approx(0.45)
    assert found.loc["kv_cache_usage_perc", "largest"] == 0.9
    assert found.loc["num_requests_running", "mean"] == 5
    assert found.loc["num_requests_running", "largest"] == 8
    assert found.loc["num_requests_running", "n"] == 2
    assert "num_requests_waiting" not in found.index
    assert gauge_statistics(scrape()).empty


def test_histogram_means_are_of_what_was_added() -> None:
    def of(total: float, count: float) -> pd.DataFrame:
        return scrape(
            ("time_to_first_token_seconds_sum", "engine=0", total),
            ("time_to_first_token_seconds_count", "engine=0", count),
            ("time_to_first_token_seconds_bucket", "engine=0,le=0.1", count),
        )

    assert histogram_means(of(10, 4), of(16, 7)) == {"time_to_first_token_seconds": 2}
    assert histogram_means(of(10, 4), of(10, 4)) == {}
    assert histogram_means(scrape(), of(10, 4)) == {}
