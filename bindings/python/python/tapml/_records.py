"""Reports as plain objects."""

from __future__ import annotations

import html
import json
from typing import Any


class Record(dict[str, Any]):
    """A dictionary whose items are attributes, too: ``report.ops[0].op`` is ``report["ops"][0]["op"]``. Where a field is
    called as a method of dictionaries is, such as ``values``, the field counts.
    """

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no field {name!r}; there are: {', '.join(self)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


class Report(Record):
    """The report of a job, with the fields that the command line writes as JSON.

    Attributes:
        passed: Whether everything holds: what the command says by its exit code 0.
        kind: The job.
    """

    #: The list that is a report's table, by job.
    _TABLES = {"check": "ops", "migrate": "ops", "diagnose": "faults", "align": "values"}

    def __init__(self, kind: str, passed: bool, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "passed", passed)

    def frame(self) -> Any:
        """The report's table as a ``pandas.DataFrame``: operators, faults or values, one a row. Fields of fields have
        dotted names, such as ``check.failed``.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        rows = self[self._TABLES[self.kind]] if self.kind in self._TABLES else [self]
        return pandas.json_normalize(rows)

    def to_json(self) -> str:
        """The same text as ``--json`` of the command."""
        return json.dumps(self, indent=2)

    def _repr_html_(self) -> str:
        """What a notebook shows: the outcome, and the report's table with its plain fields."""
        found = self._TABLES.get(self.kind, "")
        told = "passed" if self.passed else "FAILED"
        head = f"<p><b>{html.escape(self.kind)}: {html.escape(str(self.get('verdict', told)))}</b></p>"
        rows = [_flat(row) for row in dict.get(self, found, [])]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        if not columns:
            return head
        titles = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        lines = ("".join(f"<td>{html.escape(_text(row.get(name)))}</td>" for name in columns) for row in rows)
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"{head}<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"

    def __repr__(self) -> str:
        table = self.get(self._TABLES.get(self.kind, ""), [])
        what = f", {len(table)} {self._TABLES[self.kind]}" if self.kind in self._TABLES else ""
        return f"<tapml.Report {self.kind}: {'passed' if self.passed else 'FAILED'}{what}>"


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A row's numbers and texts; those of fields of fields with dotted names. Lists are left to :meth:`Report.frame`."""
    fields: dict[str, Any] = {}
    for name, value in dict.items(row):
        if isinstance(value, dict):
            fields.update(_flat(value, f"{prefix}{name}."))
        elif value is not None and not isinstance(value, list):
            fields[prefix + name] = value
    return fields


def _text(value: Any) -> str:
    """A cell."""
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def report(kind: str, passed: bool, text: str) -> Report:
    """The report of a job from its JSON."""
    return Report(kind, passed, json.loads(text, object_hook=Record))
