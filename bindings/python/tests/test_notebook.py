"""What a notebook shows of a job, without one: the table of a report, and who hears its progress."""

from __future__ import annotations

import sys
import types
from html.parser import HTMLParser
from typing import Any

import pytest

from tapml import _progress
from tapml._records import report

MIGRATED = """{"verdict": "rejected", "ops": [
  {"op": "aten.linear.default", "state": "accepted", "check": {"cases": 2, "failed": 0, "failures": []}, "seconds": 0.123456},
  {"op": "aten.<b>", "state": "rejected", "check": {"cases": 1, "failed": 1, "failures": [{"case": "x"}]}, "reason": "a & b"}]}"""


class Cells(HTMLParser):
    """The texts of the cells, row by row; fails on a tag that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def read(text: str) -> list[list[str]]:
    cells = Cells()
    cells.feed(text)
    assert not cells.open
    return cells.rows


def test_a_report_is_a_table() -> None:
    shown = report("migrate", False, MIGRATED)._repr_html_()
    assert "migrate: rejected" in shown
    head, first, second = read(shown)
    assert head == ["op", "state", "check.cases", "check.failed", "seconds", "reason"]
    assert first == ["aten.linear.default", "accepted", "2", "0", "0.1235", ""]
    assert second == ["aten.<b>", "rejected", "1", "1", "", "a & b"]


def test_a_report_without_a_table_says_the_outcome() -> None:
    assert report("carve", True, '{"nodes": 2}')._repr_html_() == "<p><b>carve: passed</b></p>"
    assert read(report("diagnose", True, '{"faults": []}')._repr_html_()) == []


def test_progress_is_shown_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert isinstance(_progress.listener(None), _progress._Calls)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert isinstance(_progress.listener(None), _progress._Bar)
    assert isinstance(_progress.listener(False), _progress._Calls)
