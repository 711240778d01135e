"""``python -m tapml.agents RUNTIME``."""

from __future__ import annotations

import argparse
import json

from . import _command, _installed
from ._aten import ATEN_RUNTIMES
from ._executor import Runtime
from ._runtimes import RUNTIMES

ALL = {**RUNTIMES, **ATEN_RUNTIMES}


def make_runtime(options: argparse.Namespace) -> Runtime:
    """The runtime that the first argument names."""
    return ALL[options.runtime](provider=options.provider, device=options.device)


def main() -> None:
    """Serves one runtime."""
    parser = _command.make_parser(list(ALL))
    options = parser.parse_args()
    if options.list_runtimes:
        for found in _installed.describe(ALL):
            print(json.dumps(found))
        return
    if not options.runtime and not options.list_faults:
        parser.error("which runtime?")
    _command.end(_command.run, options, make_runtime)


if __name__ == "__main__":
    main()
