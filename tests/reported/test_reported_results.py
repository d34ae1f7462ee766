"""What people ran into with benchmark results: one test a kind, a small input, the right answer end to end.

The kinds are numbered as in the project's list of public reports (R1 to R15).
"""

import json
from pathlib import Path

import client_files as made
import numpy as np
import pytest
from reported_results import (
    Sent,
    aggregates,
    check,
    counters,
    document,
    histogram,
    measured_run,
    result,
    write,
)

from perflab.cli import main
from perflab.tasks.latency import latency


def test_r1_gaps_between_chunks_are_not_called_times_between_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A parser holds text back: 100 tokens come in 26 chunks, 40 ms apart. A token takes 10.1 ms, as TPOT says."""
    file = write(tmp_path / "r.json", result([Sent(0, 0.1, [0.040] * 25, tokens=100)]))
    itl, tpot = (document(file, capsys)["metrics"][name] for name in ("itl_ms", "tpot_ms"))
    assert itl["mean"] == pytest.approx(40)
    assert itl["tokens_per_chunk"] == pytest.approx(100 / 26)
    assert itl["per_token_ms"] == pytest.approx(1000 / 99) == tpot["mean"]
    doubt = check(latency(file), "streaming")
    assert (doubt.status, doubt.undermines) == ("warn", ("time between tokens",))
    assert "3.8 tokens on average" in doubt.detail and "10.1 ms a token" in doubt.detail
    assert main(["latency", str(file)]) == 0
    assert doubt.detail in capsys.readouterr().out


def test_r2_a_gap_of_speculative_decoding_is_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One request at a time, 292 tokens/s, and yet 8.72 ms between chunks: a step yields 2.7 tokens."""
    figures = {"mean_itl_ms": 8.72, "median_itl_ms": 8.72, "mean_ttft_ms": 50.0, "mean_tpot_ms": 3.23,
               "output_throughput": 292.0, "total_output_tokens": 29_200, "max_concurrency": 1}  # fmt: skip
    told = write(tmp_path / "told.json", aggregates(**figures, spec_decode_acceptance_length=2.7))
    itl = document(told, capsys)["metrics"]["itl_ms"]
    assert itl["tokens_per_chunk"] == 2.7
    assert itl["per_token_ms"] == pytest.approx(8.72 / 2.7)
    assert "8.72 ms a step are 3.23 ms a token" in check(latency(told), "streaming").detail


def test_r2_throughput_gives_it_away_where_the_client_does_not_say(tmp_path: Path) -> None:
    """292 tokens/s x 8.72 ms = 2.5 requests under way, where one was allowed."""
    figures = {"mean_itl_ms": 8.72, "median_itl_ms": 8.72, "output_throughput": 292.0, "total_output_tokens": 29_200}
    doubt = check(latency(write(tmp_path / "r.json", aggregates(**figures, max_concurrency=1))), "streaming")
    assert doubt.status == "warn" and "a chunk holds about 2.5 tokens" in doubt.detail
    sound = latency(write(tmp_path / "s.json", aggregates(**figures, max_concurrency=4)))
    assert check(sound, "streaming").status == "not_applicable"


def test_r2_sglang_that_shares_a_gap_among_its_tokens_needs_no_division(tmp_path: Path) -> None:
    record = made.sglang(accept_length=2.7)
    report = latency(write(tmp_path / "r.jsonl", record))
    assert check(report, "streaming").status == "pass", "as many gaps as tokens"
    assert "definitions" in [one.check for one in report.runs[0].validity if one.status == "warn"]


def requests_of_200(ttft: float, first_gap: float) -> list[Sent]:
    return [Sent(2.0 * n, ttft, [first_gap] + [0.010] * 20) for n in range(12)]


def test_r4_an_empty_first_chunk_is_no_first_token(tmp_path: Path) -> None:
    """Two clients, one server: 5 ms against 214 ms to the first token, since one counts the role as a token."""
    role = latency(write(tmp_path / "role.json", result(requests_of_200(0.005, 0.209))))
    doubt = check(role, "possible")
    assert (doubt.status, doubt.undermines) == ("fail", ("time to first token",))
    assert "42 times the time to first token" in doubt.detail and "21 times the later ones" in doubt.detail
    right = latency(write(tmp_path / "right.json", result(requests_of_200(0.214, 0.010))))
    assert check(right, "possible").status == "pass"
    assert role.runs[0].metrics["e2el_ms"]["p50"] == pytest.approx(right.runs[0].metrics["e2el_ms"]["p50"] - 10, abs=20)


def test_r4_genai_perf_waits_for_text(tmp_path: Path) -> None:
    """Its raw export holds the role chunk after 1 ms; the first text comes after 100 to 300 ms."""
    report = latency(write(tmp_path / "profile_export.json", made.perf_analyzer()))
    assert report.runs[0].metrics["ttft_ms"]["mean"] == pytest.approx(200, rel=1e-3)
    assert check(report, "possible").status == "pass"


def test_r5_a_client_that_waits_for_the_end_of_thinking_is_held_against_the_server(tmp_path: Path) -> None:
    slow = result([Sent(0, 183.6, [0.1] * 93)], max_concurrency=1)
    before = histogram("time_to_first_token_seconds", 0, 0)
    after = histogram("time_to_first_token_seconds", 1.2, 1)
    report = latency(measured_run(tmp_path / "run", {"p": (slow, before, after)}))
    doubt = check(report, "client_server_ttft")
    assert (doubt.status, doubt.undermines) == ("warn", ("time to first token",))
    assert "184 s" in doubt.detail and "1.20 s" in doubt.detail
    assert report.runs[0].metrics["e2el_ms"]["mean"] == pytest.approx(192_900), "the whole is as long for both"


def test_r5_the_servers_own_times_may_stand_in_the_result(tmp_path: Path) -> None:
    """vLLM 0.33 writes what the server tells of each request, where it does."""
    slow = [Sent(0, 183.6, [0.1] * 93), Sent(200, 180.4, [0.1] * 93)]
    report = latency(write(tmp_path / "r.json", result(slow, server_ttfts=[1.2, 1.0], server_queue_times=[0.1, None])))
    doubt = check(report, "client_server_ttft")
    assert doubt.status == "warn" and "182 s" in doubt.detail and "1.10 s" in doubt.detail
    silent = latency(write(tmp_path / "s.json", result(slow, server_ttfts=[None, None])))
    assert check(silent, "client_server_ttft").status == "not_applicable"


def test_r5_no_first_token_at_all_is_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The limit of tokens was reached while thinking: the client never saw a first token."""
    file = write(tmp_path / "r.json", result([Sent(0, None, [], tokens=64), Sent(5, 0.2, [0.01] * 9)]))
    found = document(file, capsys)
    assert found["completed"] == 2
    assert (found["metrics"]["ttft_ms"]["n"], found["metrics"]["ttft_ms"]["mean"]) == (1, pytest.approx(200))


def test_r6_failed_requests_are_in_no_latency_and_spoil_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """4 of 10 ended in an error, with zeros where their times would be."""
    good = [Sent(n, 0.2, [0.01] * 9) for n in range(6)]
    bad = [Sent(6.0 + n, 0.0, error="Traceback: 503") for n in range(4)]
    file = write(tmp_path / "r.json", result([*good, *bad], duration=10.0))
    found = document(file, capsys)
    assert (found["completed"], found["failed"]) == (6, 4)
    assert found["metrics"]["ttft_ms"]["mean"] == pytest.approx(200) and found["metrics"]["ttft_ms"]["n"] == 6
    assert found["metrics"]["output_tokens_per_s"] == pytest.approx(6.0)
    (doubt,) = [one for one in found["validity"] if one["check"] == "requests_failed"]
    assert doubt["status"] == "fail" and "4 of 10 requests failed (40.0 %)" in doubt["detail"]
    assert set(doubt["undermines"]) >= {"latencies", "throughput"}
    assert main(["latency", str(file)]) == 0
    assert "FAIL" in capsys.readouterr().out


def test_r7_the_servers_count_of_tokens_goes_before_the_clients(tmp_path: Path) -> None:
    """900 tokens were generated; without usage the client counted 516 from text."""
    short = result([Sent(0, 0.1, [0.01] * 899, tokens=516)], max_concurrency=1, duration=10.0)
    points = {"p": (short, counters(generation_tokens=100), counters(generation_tokens=1000))}
    doubt = check(latency(measured_run(tmp_path / "run", points)), "token_count")
    assert (doubt.status, doubt.undermines) == ("warn", ("throughput",))
    assert "516" in doubt.detail and "900" in doubt.detail
    assert "By the server's count output is 90.0 tokens/s, by the client's 51.6" in doubt.detail


def test_r7_tokens_that_were_asked_for_but_never_came(tmp_path: Path) -> None:
    """SGLang's client counts what it asked for, and beside it what came back."""
    doubt = check(latency(write(tmp_path / "console.txt", made.SGLANG_CONSOLE)), "token_count")
    assert doubt.status == "warn"
    assert "103,837" in doubt.detail and "218,257" in doubt.detail and "392.9 tokens/s" in doubt.detail


def test_r7_text_tokens_against_the_usage_that_the_server_reported(tmp_path: Path) -> None:
    """AIPerf tells both; figures are by usage, and the difference is said."""
    file = write(tmp_path / "profile_export.jsonl", made.aiperf_records(text_tokens=6, usage=True))
    report = latency(file)
    assert report.runs[0].metrics["output_tokens_per_s"] == pytest.approx(33 / 2.6)
    doubt = check(report, "token_count")
    assert doubt.status == "warn" and "counts 18 output tokens, by the server's usage 33" in doubt.detail


def test_r8_zeros_of_a_server_that_does_not_stream_are_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Console text with TPOT -0.00 and ITL 0.00, whose TTFT is the whole latency."""
    file = write(tmp_path / "console.txt", made.SGLANG_CONSOLE)
    metrics = document(file, capsys)["metrics"]
    assert metrics["ttft_ms"] is metrics["tpot_ms"] is metrics["itl_ms"] is None
    assert metrics["e2el_ms"]["p50"] == 606.86 and metrics["output_tokens_per_s"] == 825.94
    doubt = check(latency(file), "streaming")
    assert doubt.status == "warn" and "did not stream" in doubt.detail
    assert check(latency(file), "possible").status == "pass"


def test_r8_the_same_request_by_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "r.json", result([Sent(n, 0.6, [], tokens=200) for n in range(8)]))
    metrics = document(file, capsys)["metrics"]
    assert metrics["ttft_ms"] is metrics["tpot_ms"] is metrics["itl_ms"] is None
    assert metrics["e2el_ms"]["mean"] == pytest.approx(600)


def test_r8_a_single_token_is_no_sign_of_it(tmp_path: Path) -> None:
    """Prompts are all that is measured: the first token is the last, and TTFT is right."""
    figures = {f"{s}_{m}_ms": v for m, v in (("ttft", 600.0), ("e2el", 600.0), ("itl", 0.0), ("tpot", 0.0))
               for s in ("mean", "median")}  # fmt: skip
    single = {"total_output_tokens": 200, "output_throughput": 2.0}
    metrics = latency(write(tmp_path / "r.json", aggregates(**figures, **single))).runs[0].metrics
    assert metrics["ttft_ms"]["mean"] == 600.0
    assert metrics["tpot_ms"] is metrics["itl_ms"] is None


def test_r8_a_negative_time_is_impossible(tmp_path: Path) -> None:
    figures = {"mean_tpot_ms": -1.5, "median_tpot_ms": 2.0, "mean_itl_ms": 2.0, "median_itl_ms": 2.0}
    doubt = check(latency(write(tmp_path / "r.json", aggregates(**figures))), "possible")
    assert (doubt.status, doubt.undermines) == ("fail", ("time per output token",))
    assert "TPOT mean is -1.50 ms, which cannot be" in doubt.detail


def test_r9_tpot_is_a_mean_of_requests_and_itl_of_tokens(tmp_path: Path) -> None:
    """2, 10 and 1000 tokens with gaps of 100, 50 and 10 ms: a request counts once for TPOT, each gap once for ITL."""
    requests = [Sent(0, 0.1, [0.100]), Sent(0, 0.1, [0.050] * 9), Sent(0, 0.1, [0.010] * 999)]
    metrics = latency(write(tmp_path / "r.json", result(requests))).runs[0].metrics
    assert metrics["tpot_ms"]["mean"] == pytest.approx((100 + 50 + 10) / 3)
    assert metrics["itl_ms"]["mean"] == pytest.approx((100 + 9 * 50 + 999 * 10) / 1009)
    assert metrics["itl_ms"]["mean"] < metrics["tpot_ms"]["mean"]
    assert (metrics["tpot_ms"]["n"], metrics["itl_ms"]["n"]) == (3, 1009)


def test_r9_output_per_second_is_of_all_requests_at_once(tmp_path: Path) -> None:
    """529 tokens/s are not 1.9 ms a token: 57 requests were under way, each with a token every 108 ms."""
    figures = {"output_throughput": 529.0, "total_output_tokens": 52_900, "mean_tpot_ms": 108.0, "mean_itl_ms": 108.0,
               "mean_e2el_ms": 28_500.0, "mean_ttft_ms": 300.0, "max_concurrency": 57}  # fmt: skip
    report = latency(write(tmp_path / "r.json", aggregates(**figures)))
    assert check(report, "streaming").status == "not_applicable", "0.529 x 108 = 57 tokens under way for 57 requests"
    kept = next(one for one in report.runs[0].validity if "57" in one.detail and one.check != "concurrency_reached")
    assert kept.status == "pass"


def test_r11_bursts_are_said_wherever_they_are(tmp_path: Path) -> None:
    """Equal but for burstiness 0.11, gaps that scatter three times as much as their mean."""
    steady = latency(write(tmp_path / "steady.json", aggregates(request_rate=2.0)))
    bursty = latency(write(tmp_path / "bursty.json", aggregates(request_rate=2.0, burstiness=0.11)))
    assert check(steady, "bursts").status == "pass"
    doubt = check(bursty, "bursts")
    assert doubt.status == "warn" and "burstiness 0.11" in doubt.detail and "3.0 times" in doubt.detail
    assert set(doubt.undermines) == {"the load", "time to first token", "high percentiles"}


def test_r11_other_bursts_are_no_regression_of_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five runs a side, TTFT three times as long: the comparison refuses, since arrivals differ."""
    for side, burstiness, ttft in (("steady", 1.0, 100.0), ("bursty", 0.11, 300.0)):
        (tmp_path / side).mkdir()
        for n in range(5):
            figures = {
                "mean_ttft_ms": ttft + n,
                "median_ttft_ms": ttft + n,
                "request_rate": 2.0,
                "duration": 100.0 + n / 100,
            }
            write(tmp_path / side / f"r{n}.json", aggregates(**figures, burstiness=burstiness))
    assert (
        main(["compare", str(tmp_path / "steady"), str(tmp_path / "bursty"), "--json", "--fail-on", "regression"]) == 0
    )
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert {one["verdict"] for one in metrics} == {"withheld"}
    assert any(one["ratio"] == pytest.approx(3, rel=0.02) for one in metrics if one["metric"] == "ttft_p50_ms")


def test_r11_bursts_are_seen_where_the_client_does_not_tell(tmp_path: Path) -> None:
    """Ten at a time every ten seconds, though one a second was asked for."""
    at_once = [Sent(10.0 * (n // 10) + 0.01 * (n % 10), 0.2, [0.01] * 4) for n in range(60)]
    raw = {**result(at_once, request_rate=1.0), "burstiness": None}
    doubt = check(latency(write(tmp_path / "r.json", raw)), "bursts")
    assert doubt.status == "warn" and "requests came in bursts" in doubt.detail


def test_r12_points_of_a_sweep_that_hit_the_prefix_cache_are_named(tmp_path: Path) -> None:
    """The same seed at each concurrency: nothing is cached at first, then 80 and 70 %; after a reset, nothing."""
    points = {}
    for concurrency, hits in ((1, 0.0), (2, 800.0), (4, 700.0), (8, 0.0)):
        one = result([Sent(n / concurrency, 0.1, [0.01] * 9) for n in range(20)], max_concurrency=concurrency)
        before = counters(prefix_cache_queries=0, prefix_cache_hits=0)
        points[f"c{concurrency}"] = (one, before, counters(prefix_cache_queries=1000, prefix_cache_hits=hits))
    report = latency(measured_run(tmp_path / "run", points, data="random"))
    found = {one.point.id: next(c for c in one.validity if c.check == "prefix_cache") for one in report.runs}
    assert {name: one.status for name, one in found.items()} == {"c1": "pass", "c2": "fail", "c4": "fail", "c8": "pass"}
    assert "80.0 %" in found["c2"].detail and found["c2"].undermines == ("time to first token", "throughput")
    (curve,) = report.to_json()["load_curves"]
    assert [load["load"] for load in curve["loads"]] == ["c1", "c8"], "no curve is drawn through the others"
    assert [one["point"] for one in curve["excluded"]] == ["c2", "c4"]
    meant = latency(measured_run(tmp_path / "meant", points, data="prefix_repetition"))
    assert {check(meant, "prefix_cache", n).status for n in range(4)} == {"not_applicable"}


def test_r13_a_cold_first_request_is_named_and_nothing_is_dropped(tmp_path: Path) -> None:
    ttfts = [21.0, 0.21, 0.20, 0.19, 0.21, 0.20, 0.20, 0.19]
    report = latency(write(tmp_path / "r.json", result([Sent(30.0 * n, t, [0.01] * 9) for n, t in enumerate(ttfts)])))
    assert report.runs[0].metrics["ttft_ms"]["n"] == 8
    assert report.runs[0].metrics["ttft_ms"]["mean"] == pytest.approx(1000 * np.mean(ttfts))
    doubt = check(report, "warm_up")
    assert doubt.status == "warn" and "21.0 s" in doubt.detail
    assert "without it the mean would be 200 ms instead of 2.80 s" in doubt.detail


def test_r14_a_p99_of_24_values_is_said_to_be_about_the_largest(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ttfts = rng.lognormal(-1.5, 0.5, 24)
    report = latency(write(tmp_path / "r.json", result([Sent(n, float(t), [0.01] * 4) for n, t in enumerate(ttfts)])))
    ttft = report.runs[0].metrics["ttft_ms"]
    assert ttft["p99"] == pytest.approx(1000 * np.percentile(ttfts, 99, method="linear"), rel=1e-6)
    assert ttft["n"] == 24 and ttft["ci_low"] is None
    doubt = check(report, "enough_samples")
    assert (doubt.status, doubt.undermines) == ("warn", ("high percentiles",))
    assert doubt.detail.startswith("24 requests are too few for p99")


def test_r15_prompts_that_never_came_back_are_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """100 asked for, 97 completed, and the older format has no word for the rest."""
    raw = aggregates(num_prompts=100, completed=97, request_throughput=0.97)
    del raw["failed"]
    file = write(tmp_path / "r.json", raw)
    assert document(file, capsys)["failed"] == 3
    report = latency(file)
    assert report.runs[0].result.failed_inferred
    doubt = check(report, "requests_failed")
    assert doubt.status == "fail" and "3 of 100 requests failed" in doubt.detail


def test_a_run_may_be_bad_for_one_thing_and_good_for_another(tmp_path: Path) -> None:
    """Chunks of several tokens spoil ITL; TTFT, TPOT and throughput stand."""
    requests = [Sent(n, 0.1, [0.040] * 25, tokens=100) for n in range(120)]
    report = latency(write(tmp_path / "r.json", result(requests)))
    spoiled = {name for one in report.runs[0].validity if one.status in ("warn", "fail") for name in one.undermines}
    assert spoiled == {"time between tokens"}
