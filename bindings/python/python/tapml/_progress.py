"""Progress of long work."""

from __future__ import annotations

import sys
from typing import Any, Callable, NamedTuple, Optional, Union


class Progress(NamedTuple):
    """What a callback is told."""

    #: The stage at hand, such as ``"prefill and decode"``.
    stage: str
    #: Units that are done in it.
    done: int
    #: Units that it has; 0 if that is not known.
    total: int
    #: Something worth a line, such as that an operator was accepted; else ``None``.
    note: Optional[str]


ProgressLike = Union[None, bool, Callable[[Progress], Any]]
Listener = Callable[[str, str, int], None]


class _Calls:
    """Tells a callback."""

    def __init__(self, callback: Callable[[Progress], Any]) -> None:
        self._callback = callback
        self._state = Progress("", 0, 0, None)

    def __call__(self, kind: str, text: str, number: int) -> None:
        state = self._state
        if kind == "stage":
            state = Progress(text, 0, number, None)
        elif kind == "advance":
            state = state._replace(done=state.done + number, note=None)
        self._state = state
        self._callback(state._replace(note=text) if kind == "note" else state)

    def close(self) -> None:
        """Nothing to close."""


class _Bar:
    """A tqdm bar for each stage."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._bar: Any = None

    def __call__(self, kind: str, text: str, number: int) -> None:
        if kind == "stage":
            self.close()
            self._bar = self._tqdm(total=number or None, desc=text, leave=False, file=sys.stderr)
        elif kind == "advance" and self._bar is not None:
            self._bar.update(number)
        elif kind == "note":
            self._tqdm.write(text, file=sys.stderr)

    def close(self) -> None:
        """Ends the stage's bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _silent(_: Progress) -> None:
    pass


def _in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def listener(progress: ProgressLike) -> Any:
    """What hears a job: a callback, a bar if tqdm is there (``True``, on a terminal, or in a notebook), or nobody."""
    if callable(progress):
        return _Calls(progress)
    if progress or (progress is None and (sys.stderr.isatty() or _in_notebook())):
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return _Calls(_silent)
        return _Bar(tqdm)
    return _Calls(_silent)
