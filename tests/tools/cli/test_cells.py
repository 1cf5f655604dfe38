"""Texts fit into the cells of a terminal, whatever they are made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.text import escape
from leadsman.tools.cli.screen import cells, clip, pad, wrap

TEXT = st.text(st.sampled_from("ab  ß温e\u0301🌡-") | st.characters(), max_size=150).map(escape)


@pytest.mark.parametrize(
    ("text", "width", "found"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("温度計", 6, "温度計"),
        ("温度計", 5, "温度…"),
        ("e\u0301a", 2, "e\u0301a"),
        ("ab", 0, ""),
        ("a\x1b[2Jb", 20, "a\\x1b[2Jb"),
        ("a\nb\x9bc", 20, "a\\nb\\x9bc"),
    ],
)
def test_text_is_cut_by_the_cells_that_it_takes(text, width, found):
    assert clip(text, width) == found


@given(TEXT, st.integers(4, 130), st.integers(0, 40), st.integers(0, 40))
def test_a_wrapped_text_fits_and_loses_nothing_but_blanks(text, width, indent, further):
    lines = wrap(text, width, " " * indent, " " * further)

    assert [line for line in lines if cells(line) > width] == []
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@given(TEXT, st.integers(8, 130))
def test_only_a_word_that_is_longer_than_a_line_is_broken(text, width):
    lines = wrap(text, width, "  ", "    ")

    room = width - 4
    words = [word for line in lines for word in line.split(" ") if word]
    assert [word for word in text.split(" ") if word and cells(word) <= room and word not in words] == []


@given(TEXT, st.integers(0, 100))
def test_a_text_is_filled_up_by_cells(text, width):
    assert cells(pad(text, width)) == max(width, cells(text))


def test_a_word_that_is_longer_than_a_line_is_broken_behind_a_sign_where_it_has_one():
    path = "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0"

    assert wrap(path, 56) == ["/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A50285BI-", "if00-port0"]
    assert wrap("x" * 10, 6) == ["x" * 6, "x" * 4]
