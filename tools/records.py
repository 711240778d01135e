"""Files of dated records in `docs/results/data`, from which `docs/results/records.md` is made."""

import json
import pathlib
from typing import Any

Record = dict[str, Any]


def read(path: pathlib.Path) -> Record:
    """What stands in a file; a file with no records if there is none."""
    return json.loads(path.read_text()) if path.exists() else {"schema": 1, "title": path.stem, "about": "", "records": []}


def write(path: pathlib.Path, content: Record, records: list[Record]) -> None:
    """Writes a file with these records in the place of its own, a record a line."""
    compact = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # noqa: E731
    fields = [f"{compact(name)}:{compact(value)}" for name, value in content.items() if name != "records"]
    lines = ",\n".join(map(compact, records))
    path.write_text("{" + "".join(f"{field},\n" for field in fields) + '"records":[\n' + lines + "\n]}\n")
