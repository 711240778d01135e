"""Reports as plain objects."""

from __future__ import annotations

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

    def __repr__(self) -> str:
        table = self.get(self._TABLES.get(self.kind, ""), [])
        what = f", {len(table)} {self._TABLES[self.kind]}" if self.kind in self._TABLES else ""
        return f"<tapml.Report {self.kind}: {'passed' if self.passed else 'FAILED'}{what}>"


def report(kind: str, passed: bool, text: str) -> Report:
    """The report of a job from its JSON."""
    return Report(kind, passed, json.loads(text, object_hook=Record))
