"""The rules that name kernels: real names, the traps in them, and files of users."""

import tomllib
from pathlib import Path

import pytest

from perflab.errors import InputError
from perflab.knowledge.categories import load_rules
from perflab.schema import CATEGORIES

NAMES = tomllib.loads((Path(__file__).parent / "kernel_names.toml").read_text())
CASES = [
    (kind, name, category)
    for kind, categories in NAMES.items()
    for category, names in categories.items()
    for name in names
]


@pytest.mark.parametrize(("kind", "name", "category"), CASES)
def test_real_names(kind: str, name: str, category: str) -> None:
    assert load_rules().category(name, kind) == category


def test_copies_and_sets_are_memory() -> None:
    rules = load_rules()
    assert rules.category("Memcpy DtoH (Device -> Pinned)", "memcpy") == "memory"
    assert rules.category("Memset (Device)", "memset") == "memory"


def test_every_rule_has_evidence_and_none_is_shadowed_by_its_own_words() -> None:
    rules = load_rules().rules
    assert all(len(rule.evidence) > 20 for rule in rules)
    assert {rule.category for rule in rules} == set(CATEGORIES) - {"other"}


def test_a_users_rules_come_first(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[[rule]]\ncategory = "moe"\npattern = \'^nvjet\'\nevidence = "my experts"\n')
    assert load_rules(file).category("nvjet_sm90_tst") == "moe"
    assert load_rules(file).category("fused_moe_kernel") == "moe"
    assert load_rules().category("nvjet_sm90_tst") == "gemm"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rule]\n", "not valid TOML"),
        ("", "no [[rule]]"),
        ('[[rule]]\ncategory = "gemm"\n', "rule 1 lacks pattern"),
        ("[[rule]]\ncategory = \"matmul\"\npattern = 'x'\n", "'matmul' is not one of"),
        ("[[rule]]\ncategory = \"gemm\"\npattern = '('\n", "not a regular expression"),
        ('[[rule]]\ncategory = "gemm"\npattern = \'x\'\napplies_to = "gpu"\n', "'gpu' is not one of"),
        ('[[rule]]\ncategory = "gemm"\npattern = \'x\'\nwhy = "?"\n', "unknown key 'why'"),
        ('[[rule]]\ncategory = "gemm"\npattern = 3\n', "rule 1 lacks pattern"),
        ("rules = 3\n", "no [[rule]]"),
        ("[[rule]]\ncategory='gemm'\npattern='x'\n\n[other]\nx = 1\n", "'other' beside"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load_rules(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_names_the_line_of_its_rule(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        "# mine\n\n[[rule]]\ncategory = 'gemm'\npattern = 'x'\n\n[[rule]]\ncategory = 'gemms'\npattern = 'y'\n"
    )
    with pytest.raises(InputError) as caught:
        load_rules(file)
    assert str(caught.value).startswith(f"{file}:7: rule 2: category 'gemms' is not one of")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_rules(tmp_path / "none.toml")


LISTED = {
    "nvjet": "gemm", "cutlass": "gemm", "triton_red_fused": "norm_act", "flash::flash_fwd_kernel": "attention",
    "FlashAttnFwdSm90": "attention", "FlashAttentionForwardSm100": "attention", "flashinfer::Batch": "attention",
    "marlin::Marlin": "gemm", "machete": "gemm", "awq": "gemm", "gptq": "gemm", "cutlass_3x_gemm_sm90_fp8": "gemm",
    "deep_gemm": "gemm", "fused_moe_kernel": "moe", "ncclDevKernel": "communication",
    "cross_device_reduce": "communication", "multimem_all_reduce": "communication",
}  # fmt: skip


@pytest.mark.parametrize(("word", "category"), LISTED.items())
def test_each_library_vllm_computes_with_has_a_real_name_here(word: str, category: str) -> None:
    """So that dropping one from the list of names is noticed."""
    assert [name for name in NAMES["kernel"][category] if word in name]
