"""The harness of the fault matrix finds what a row plants."""

import ast
import base64
import json
from pathlib import Path

import pytest

from fault_matrix.canary import CANARY, holds_canary
from fault_matrix.report import exit_code, markdown, produce, produce_all, summary, table
from fault_matrix.row import MOUNT, P0, P1, Absent, Figure, Outcome, Row, all_rows
from fault_matrix.stand import run
from fault_matrix.tally import Tally, taken

ROOT = Path(__file__).parents[2]


def row(act=None, number="7", priority=P0, **options):
    return Row(number, priority, "a fault", "something", act, **options)


def tally(*numbers, device="d0"):
    counted = Tally()
    for number in numbers:
        counted.add(f"row/{device}/state", f'{{"n": {number}}}'.encode())
    return counted


def test_a_reading_that_did_not_come_is_lost():
    assert tally(1, 2, 4).lost({"d0": {1, 2, 3, 4}, "d1": {1}}) == {"d0": {3}, "d1": {1}}


def test_a_reading_that_comes_late_is_out_of_order_and_one_that_comes_twice_a_duplicate():
    counted = tally(1, 3, 2, 2, 4)

    assert (counted.disordered, counted.duplicates, counted.came) == (1, 1, 4)


def test_what_the_broker_has_kept_is_neither_a_duplicate_nor_out_of_order():
    counted = tally(1, 2)
    counted.add("row/d0/state", b'{"n": 2}', retained=True)
    counted.add("row/d0/availability", b"online")

    assert (counted.disordered, counted.duplicates, counted.came) == (0, 0, 2)


def test_the_ledger_is_read_up_to_a_time_and_without_a_line_that_was_not_finished(tmp_path):
    (tmp_path / "ledger").write_text("d0 1 10.0\nd0 2 20.0\nd1 1 15.0\nd0 3 1")

    assert taken(tmp_path / "ledger") == {"d0": {1, 2}, "d1": {1}}
    assert taken(tmp_path / "ledger", until=18) == {"d0": {1}, "d1": {1}}
    assert taken(tmp_path / "nothing") == {}


@pytest.mark.parametrize(
    ("figure", "kept", "words"),
    [
        (Figure("lost", 0, most=0), True, "lost 0"),
        (Figure("lost", 1200, most=0), False, "lost 1,200, and at most 0 is right"),
        (Figure("tests", 0, least=1), False, "tests 0, and at least 1 is right"),
        (Figure("exit", 0.256, "s"), True, "exit 0.26 s"),
    ],
)
def test_a_figure_outside_its_limits_is_a_miss(figure, kept, words):
    assert (figure.kept, str(figure)) == (kept, words)


def test_a_row_is_missed_by_a_figure_a_fault_or_an_error(tmp_path):
    def figure(stand):
        stand.figure("lost", 1, most=0)

    def fault(stand):
        stand.expect(False, "it did not happen")

    def error(stand):
        raise OSError("no such port")

    outcomes = [run(row(act), tmp_path / act.__name__) for act in (figure, fault, error)]

    assert [outcome.verdict for outcome in outcomes] == ["MISS"] * 3
    assert [outcome.words for outcome in outcomes][1:] == ["it did not happen", "OSError: no such port"]


def test_a_row_is_missed_if_the_password_is_in_a_file_or_a_message(tmp_path):
    def file(stand):
        (stand.directory / "app.log").write_text(f"connecting to mqtt://bird:{CANARY}@broker")

    def message(stand):
        stand.hear("row/status", f'{{"url": "{CANARY}"}}'.encode())

    assert "the password is in app.log" in run(row(file), tmp_path / "file").words
    assert "the password was published to row/status" in run(row(message), tmp_path / "message").words


@pytest.mark.parametrize("before", ["", "b", "bi", "bird:"])
def test_the_password_is_found_in_each_form_in_which_a_program_may_write_it(before):
    text = f"{before}{CANARY}:after"

    assert holds_canary(base64.b64encode(text.encode()))
    assert holds_canary(json.dumps({"url": f"mqtt://{text}"}).encode())
    assert holds_canary(text.encode().hex().encode())
    assert holds_canary("".join(f"%{byte:02x}" for byte in text.encode()).encode())
    assert not holds_canary(CANARY[:-1].encode())


def test_a_fault_that_cannot_be_produced_here_is_no_miss_and_one_of_p0_that_nothing_produces_is(tmp_path):
    def absent(stand):
        raise Absent("no tmpfs can be mounted")

    assert run(row(absent), tmp_path / "absent").verdict == "absent"
    assert produce(row(needs=frozenset({MOUNT})), tmp_path).words == "not built; it needs the right to mount a tmpfs"
    assert produce(row(), tmp_path).verdict == "MISS"
    assert produce(row(priority=P1), tmp_path).verdict == "absent"


def test_the_exit_code_says_whether_a_row_of_p0_is_missed():
    missed, well = Outcome(row(), faults=["no"]), Outcome(row())

    assert exit_code([well, Outcome(row(priority=P1), faults=["no"])]) == 0
    assert exit_code([well, missed]) == 1


def test_the_matrix_is_printed_for_people_and_for_a_page(tmp_path):
    seen = []
    rows = [row(lambda stand: stand.figure("lost", 2, most=0), "1"), row(lambda stand: None, "2", P1)]
    outcomes = produce_all(rows, tmp_path, 2, seen.append)

    assert len(seen) == 2
    assert "   1  P0  MISS    a fault → something\n" in table(outcomes)
    assert "| 1 | 0 | a fault | something | **missed** | lost 2, and at most 0 is right |" in markdown(outcomes)
    assert summary(outcomes) == "P0: 0 passed, 1 missed, 0 not produced (1)\nP1: 1 passed, 0 missed, 0 not produced"


def test_each_number_is_there_once_and_each_test_that_a_row_names_exists():
    rows = all_rows()
    named = [test.split("::") for each in rows for test in each.tests]
    functions = {
        file: {
            node.name
            for node in ast.walk(ast.parse((ROOT / file).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for file in {file for file, *_ in named}
    }

    assert len({each.number for each in rows}) == len(rows)
    assert {"".join(filter(str.isdigit, each.number)) for each in rows} >= {str(number) for number in range(1, 61)}
    assert [names for names in named if names[-1] not in functions[names[0]]] == []


def test_in_ci_run_the_rows_of_p0_that_are_functions_and_quick():
    chosen = {each.number for each in all_rows() if each.in_ci}

    assert {"1", "2", "3", "13", "15", "15b", "17", "18", "19", "22"} <= chosen
    assert not chosen & {"11", "16", "30", "55b"}
