"""The first page: what matters most over all runs, told once, ranked, with what to do and how far to trust it."""

from typing import Any

from small_runs import EVIL
from test_report_blocks import Page, check, finding

from perflab.report import summary, summary_blocks
from perflab.report.summary import Found


def found(*findings: dict[str, Any]) -> list[Found]:
    return [Found(one, f"card-{n}", f"1.{n}") for n, one in enumerate(findings)]


def test_one_rule_over_several_runs_is_one_finding_with_the_others_named() -> None:
    runs = [finding(run="a", confidence=0.6), finding(run="b", confidence=0.9), finding(id="other", run="a")]
    first, second = sorted(summary.groups(found(*runs)), key=lambda group: -len(group.members))
    assert [one.finding["run"] for one in first.members] == ["b", "a"], "the surest in full, the other by its name"
    assert second.members[0].finding["id"] == "other"


def test_two_findings_of_one_rule_about_one_run_are_two() -> None:
    both = found(finding(title="Prefill"), finding(title="Decode"))
    assert len(summary.groups(both)) == 2


def test_graver_comes_first_then_surer_then_larger_and_what_is_withheld_last() -> None:
    def impact(value: float) -> dict[str, Any]:
        return {"value": value, "unit": "ms/step"}

    listed = found(
        finding(id="w", withheld=True, severity="critical"),
        finding(id="small", severity="info", confidence=0.5, impact=impact(1.0)),
        finding(id="large", severity="info", confidence=0.5, impact=impact(-9.0)),
        finding(id="sure", severity="info", confidence=0.9, impact=None),
        finding(id="grave", severity="critical", confidence=0.1),
    )
    order = [group.first.finding["id"] for group in summary.groups(listed)]
    assert order == ["grave", "sure", "large", "small", "w"]
    assert [g.first.finding["id"] for g in summary.top(summary.groups(listed))] == ["grave", "sure", "large"]
    assert summary.top(summary.groups(listed[:1])) == [], "what is withheld is nothing to tell a director"


def test_the_first_page_links_to_the_evidence_and_gives_the_exact_command() -> None:
    groups = summary.groups(found(finding(run="Long title"), finding(run="Other title")))
    names = {"Long title": "short", "Other title": "second"}
    page = Page(summary_blocks.findings_html(groups, names))
    assert [link["href"] for link in page.all("a")] == ["#card-0", "#card-1"]
    assert page.all("a")[0]["data-at"] == "1.0"
    assert "impact 1.84 ms/step · confidence 90 % · short · also in second" in page.text
    assert "vllm bench serve" in Page(summary_blocks.next_html(groups)).text


def test_of_an_unfinished_run_it_is_told_how_much_is_there_and_that_the_rest_comes_first() -> None:
    runs = [{"run": "a", "status": "partial", "reason": "killed", "missing": "5 of 14 points"}]
    assert "a is partial: killed. There are 5 of 14 points." in Page(summary_blocks.unfinished_html(runs)).text
    assert "Measure what is missing first" in summary_blocks.next_html([], [], runs)


def test_one_figure_alone_is_no_row_of_figures() -> None:
    tile = {"label": "Share", "value": "28.2 %", "note": "a"}
    alone, two = ([{"sentences": ["A sentence."], "tiles": [tile] * n}] for n in (1, 2))
    assert "tiles" not in summary_blocks.answer_html(alone)
    assert summary_blocks.answer_html(two).count("<dt>") == 2


def test_hardware_that_another_run_tells_more_of_is_named_once() -> None:
    told = ("NVIDIA H200", "NVIDIA H200 (140.4 GiB), driver 580", "2 x NVIDIA H200")
    runs = [{"run": name, "machine": "NVIDIA H200", "hardware": told[n]} for n, name in enumerate("abc")]
    assert summary.origins(runs)[0].hardware == told[1:]


def test_of_a_comparison_the_verdict_leads_and_causes_are_no_advice() -> None:
    verdict = finding(id="change_undecided", severity="info", confidence=0.0, change="Measure more runs")
    cause = finding(id="step_time_changed", severity="info", confidence=0.8, change="quantization none to awq")
    groups = summary.groups(found(cause, verdict))
    assert [group.first.finding["id"] for group in groups] == ["change_undecided", "step_time_changed"]
    assert [step["change"] for step in summary.steps(groups)] == ["Measure more runs"]


def test_the_same_advice_for_two_findings_is_given_once() -> None:
    groups = summary.groups(found(finding(id="a"), finding(id="b"), finding(id="c", change="Do else")))
    assert len(summary.steps(groups)) == 2


def test_silence_of_rules_is_not_taken_for_health() -> None:
    failed = [check("fail")]
    assert "First mend" in summary_blocks.next_html([], failed)
    assert "Nothing needs to be changed" in summary_blocks.next_html([], [check("warn")])
    withheld = summary.groups(found(finding(withheld=True)))
    assert "1 findings are withheld" in summary_blocks.findings_html(withheld, {})


def test_a_run_that_did_not_end_is_told_before_its_figures_are_believed() -> None:
    runs = [{"run": "a", "status": "partial", "reason": "The disk is full."}, {"run": "b", "status": "complete"}]
    told = Page(summary_blocks.unfinished_html(runs)).text
    assert told == "a is partial: The disk is full. What was not measured is in no figure."


def test_runs_that_did_not_end_alike_stand_in_one_line() -> None:
    runs = [{"run": name, "status": "partial", "reason": "5 of 15 points so far"} for name in ("a", "b")]
    told = Page(summary_blocks.unfinished_html([*runs, {"run": "c", "status": "failed", "reason": "no memory"}])).text
    assert "a, b are partial: 5 of 15 points so far of each." in told and "c is failed: no memory." in told


def test_nothing_to_change_is_said() -> None:
    assert "No rule found" in summary_blocks.findings_html([], {})
    assert "Nothing needs to be changed" in summary_blocks.next_html([])


def test_checks_that_fail_alike_for_several_runs_are_told_once_and_failures_first() -> None:
    checks = [check("warn", source="a"), check("warn", source="b"), check("fail", check="x", source="b"), check()]
    doubts = summary.doubts(checks)
    assert [(one.check["status"], one.count, one.sources) for one in doubts] == [
        ("fail", 1, ("b",)),
        ("warn", 2, ("a", "b")),
    ]
    page = Page(summary_blocks.trust_html(checks))
    assert "4 checks: 1 passed, 2 warn, 1 failed, 0 do not apply." in page.text
    assert summary.worst(checks) == "fail" and summary.worst([]) == ""


def test_where_it_is_from_is_grouped_by_machine_gpus_first_and_two_machines_are_warned_of() -> None:
    def run(name: str, machine: str, **more: Any) -> dict[str, Any]:
        facts = {"hardware": machine, "engine": "vLLM 1", "model": "m", "created": "2026-01-02", "status": "complete"}
        return {"run": name, "title": name, "machine": machine, "notes": ["Random."], **facts, **more}

    runs = [run("c", "CPU: x"), run("a", "H200"), run("b", "H200", created="2026-01-01", status="partial")]
    first, second = summary.origins(runs)
    assert (first.machine, first.runs, first.dates) == ("H200", ("a", "b"), ("2026-01-01", "2026-01-02"))
    assert first.unfinished == (("b", "partial"),) and second.runs == ("c",)
    page = Page(summary_blocks.source_html(runs))
    assert "2 kinds of machine" in page.text and "b is partial" in page.text
    assert page.text.count("Random.") == 1
    assert "kinds of machine" not in Page(summary_blocks.source_html(runs[1:])).text


def test_html_in_what_runs_bring_along_stays_text() -> None:
    groups = summary.groups(found(finding(title=EVIL, run=EVIL, change=EVIL, check=EVIL, id=EVIL)))
    run = {
        "run": EVIL,
        "machine": EVIL,
        "hardware": EVIL,
        "engine": EVIL,
        "model": EVIL,
        "notes": [EVIL],
        "status": EVIL,
    }
    tile = {"label": EVIL, "value": EVIL, "note": EVIL}
    for html in (
        summary_blocks.findings_html(groups, {EVIL: EVIL}), summary_blocks.next_html(groups),
        summary_blocks.trust_html([check("fail", detail=EVIL, source=EVIL)]), summary_blocks.source_html([run]),
        summary_blocks.answer_html([{"sentences": [EVIL], "tiles": [tile]}]),
    ):  # fmt: skip
        page = Page(html)
        assert not page.all("img") and "<img" in page.text
