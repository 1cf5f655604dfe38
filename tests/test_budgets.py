"""The budgets of the benchmarks, without measuring anything."""

import re
from pathlib import Path

import pytest
from benchmarks.budgets import PAGE, Budget, beyond_noise, faults, is_exceeded, read
from benchmarks.extensions_job import added
from benchmarks.rows import Row, paired_row, ratio_row

from leadsman.extensions import SHIPPED

TABLE = """
## Budgets

| row | budget | part | why it was moved last |
|---|---|---|---|
| start, 10 devices | ≤ 1.3 | `starts` | |
| readings/s | ≥ 1,000.5 | `limits` | a reason |

## Other

| start, 10 devices | ≤ 9 | `starts` | |
"""


@pytest.mark.parametrize(
    ("rounds", "bound", "beyond"),
    [
        ((1.2,), "≤", 1.2),
        ((1.3, 1.1, 1.2), "≤", 1.1),
        ((1.3, 1.1, 1.2), "≥", 1.3),
        ((1.5, 1.1, 1.2, 1.3, 1.4), "≤", 1.1),
        ((1, 2, 3, 4, 5, 6, 7), "≤", 1),
        ((8, 7, 6, 5, 4, 3, 2, 1), "≤", 2),
        ((8, 7, 6, 5, 4, 3, 2, 1), "≥", 7),
        (range(1, 11), "≤", 2),
        (range(1, 12), "≤", 3),
        (range(1, 101), "≤", 42),
    ],
)
def test_the_noise_leaves_as_many_rounds_on_the_better_side_as_chance_does_in_one_of_twenty_runs(rounds, bound, beyond):
    assert beyond_noise(rounds, bound) == beyond


@pytest.mark.parametrize(
    ("rounds", "budget", "exceeded"),
    [
        ((1.3,), Budget("≤", 1.3), False),
        ((1.31,), Budget("≤", 1.3), True),
        ((1.4, 1.5, 1.4, 1.35, 1.31), Budget("≤", 1.3), True),
        ((1.4, 1.5, 1.4, 1.35, 1.29), Budget("≤", 1.3), False),
        ((1.4, 1.5, 9.0, 1.35, 1.31), Budget("≤", 1.3), True),
        ((1.0, 1.0, 9.0, 1.1, 1.1), Budget("≤", 1.3), False),
        ((1.9, 2.0, 1.8), Budget("≥", 2), False),
        ((1.9, 1.99, 1.8), Budget("≥", 2), True),
    ],
)
def test_a_budget_is_exceeded_by_more_than_the_noise_of_the_rounds(rounds, budget, exceeded):
    assert is_exceeded(rounds, budget) is exceeded


def test_the_budgets_are_the_table_below_their_heading():
    found = read(TABLE)

    assert found == {("starts", "start, 10 devices"): Budget("≤", 1.3), ("limits", "readings/s"): Budget("≥", 1000.5)}
    assert [*map(str, found.values())] == ["≤ 1.3", "≥ 1,000.5"]


def test_each_row_of_the_table_on_the_page_is_a_budget():
    page = PAGE.read_text()
    table = page.partition("\n## Budgets\n")[2].partition("\n## ")[0]

    assert len(read(page)) == len(re.findall(r"^\| ", table, re.MULTILINE)) - 1 > 20


def test_by_night_the_start_memory_rates_imports_and_extensions_are_held_to_budgets_that_the_page_has():
    (parts,) = re.findall(r'make bench ARGS="(.*)"', Path(".github/workflows/nightly.yml").read_text())

    assert {*parts.split()} >= {"starts", "memories", "rates", "imports", "extensions"}
    assert {*parts.split()} <= {part for part, _ in read(PAGE.read_text())}


@pytest.mark.parametrize("extension", [each.package.rpartition(".")[2] for each in SHIPPED])
def test_each_extension_has_budgets_for_what_it_adds(extension):
    rows = [
        row for part, row in read(PAGE.read_text()) if part == "extensions" and row.startswith(f"{extension} adds:")
    ]

    assert len(rows) == 3


def test_what_is_wrong_with_a_row_says_what_it_is_and_what_it_may_be():
    rows = [Row("start, 10 devices", rounds=(1.4, 1.5, 1.35))]

    assert faults("starts", rows, read(TABLE)) == [
        "`starts`: start, 10 devices: 1.4, 1.35 without the noise (rounds: 3); the budget is ≤ 1.3"
    ]


def test_a_row_that_can_have_a_budget_and_has_none_is_a_fault_and_so_is_a_budget_of_no_row():
    rows = [Row("start, 10 device", rounds=(1.0,)), Row("start, 10 devices"), Row("of no bare side")]

    assert faults("starts", rows, read(TABLE)) == [
        "`starts`: no budget for the row: start, 10 device; write one into Budgets of README.md",
        "`starts`: no value for the budget of: start, 10 devices",
    ]


def test_a_part_of_which_nothing_could_be_measured_exceeds_no_budget():
    assert faults("starts", [Row("not measured")], read(TABLE)) == []


def test_rows_within_their_budgets_have_no_fault():
    assert faults("starts", [Row("start, 10 devices", rounds=(1.3,))], read(TABLE)) == []


def test_a_row_is_judged_by_its_ratios_to_the_bare_loop():
    paired = paired_row("start", "ms", [{"bare": 2.0, "ours": 3.0}, {"bare": 4.0, "ours": 4.0}], "≤ 1")

    assert paired.rounds == (1.5, 1.0)
    assert str(paired) == "start | 3 ms | 3.5 ms | – | 1.25 | ≤ 1"
    assert ratio_row("rate", "/s", {"bare": 4.0, "ours": 8.0}, "≥ 1").rounds == (2.0,)
    assert ratio_row("rate", "/s", {"ours": 8.0}, "≥ 1").rounds == ()


def test_an_extension_adds_the_modules_memory_and_calls_that_an_app_without_it_lacks():
    without = {"modules": ["sys", "json"], "memory": 2048.0, "calls": 10.0}
    cost = {"modules": ["sys", "ledger.part", "json", "ledger.table"], "memory": 3072.0, "calls": 12.5}

    assert added(without, cost) == (["ledger.part", "ledger.table"], 1.0, 2.5)
