"""``python -m tapml.agents RUNTIME``."""

from __future__ import annotations

import argparse

from . import _command
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
    if not options.runtime and not options.list_faults:
        parser.error("which runtime?")
    _command.end(_command.run, options, make_runtime)


if __name__ == "__main__":
    main()
