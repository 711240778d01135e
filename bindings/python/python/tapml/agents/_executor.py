"""What every runtime is to an agent, and the cache of what it has built."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import pathlib
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Callable, Optional

import numpy as np

from ._calls import DTYPES, FLOATS, NAMES, Call, Invalid, Unsupported

#: An executable: the inputs that are no constants, in the order of ``Call.given``, to the results in order.
Executable = Callable[[list[np.ndarray]], list[np.ndarray]]

PREFIXES = ("Exception from ", "Traceback ", "  File ", "Check '", "    ")

#: Seconds that a call may take in an agent.
DEADLINE = 600.0
#: The exit code of an agent of which a call has taken longer.
OUT_OF_TIME = 124

#: How runtimes say while they run that they do not serve what is asked.
NOT_SERVED = re.compile(r"(?i)\bunsupported|not supported|not implemented|unimplemented")


class Runtime:
    """A runtime behind an agent. Subclasses say how a call is built; see OnnxRuntime and AtenRuntime."""

    #: The word for it in reports and addresses: letters, digits, "-", "_".
    name = ""
    #: The module to import, and what to install where it is missing.
    package, install = "", ""
    #: Names of the operators it may serve.
    operators: tuple[str, ...] = ()
    #: TapML's dtypes of inputs and outputs.
    dtypes: tuple[str, ...] = tuple(DTYPES)
    #: The dtype of its sums, from which the allowed error follows.
    accumulate = "f32"
    #: Whether several nodes may run as one model.
    graphs = True
    #: What it raises, also while it runs, for what it does not serve.
    refusals: tuple[type[BaseException], ...] = (NotImplementedError, ImportError)

    def __init__(self, **options: Any) -> None:
        self.options = {name: value for name, value in options.items() if value is not None}
        try:
            self.module: Any = importlib.import_module(self.package) if self.package else None
        except ImportError as error:
            # Something else may be missing: the runtime is there, but one of its own packages is not.
            cause = "" if error.name and self.package.startswith(error.name) else f" ({error})"
            raise LookupError(f"{self.name} is not installed{cause}: `pip install {self.install or self.package}`") from None

    @property
    def version(self) -> str:
        """The version of the runtime's package."""
        return str(getattr(self.module, "__version__", ""))

    @property
    def title(self) -> str:
        """Its name for people."""
        return " ".join([self.name, self.version, *(str(value) for value in self.options.values())])

    def fingerprint(self, *more: str) -> str:
        """Changes with the runtime, its options and the sources of this package."""
        code = hashlib.sha256(repr((self.name, self.version, sorted(self.options.items()), more)).encode())
        for file in sorted(pathlib.Path(__file__).parent.rglob("*.py")):
            code.update(file.read_bytes())
        return code.hexdigest()[:16]

    def served(self) -> tuple[str, ...]:
        """Names of all operators that it may serve."""
        return self.operators

    def accumulate_of(self, operators: str) -> str:
        """The dtype of the sums of these operators, one of the names that it may serve."""
        return self.accumulate

    def check(self, call: Call) -> Call:
        """The call as the runtime takes it. Raises Unsupported, or ValueError for a call that cannot be right."""
        raise NotImplementedError

    def prepare(self, call: Call) -> Executable:
        """Builds what runs the call. Whatever it raises means that the runtime does not serve the call."""
        raise NotImplementedError

    def finish(self, asked: Call, call: Call, results: list[np.ndarray]) -> list[np.ndarray]:
        """The results as they are sent. ``asked`` is the call as it came, ``call`` what ``check`` made of it."""
        return results


class Executor:
    """Runs calls on a runtime, and keeps what it built for the next call with the same types and constants. One call
    runs at a time, whichever session it is of. The process ends if a call takes longer than ``deadline`` seconds."""

    def __init__(
        self,
        runtime: Runtime,
        fault: Any = None,
        entries: int = 256,
        constants: int = 2 << 30,
        deadline: Optional[float] = None,
    ) -> None:
        self.runtime, self.fault, self.deadline = runtime, fault, deadline
        self.entries, self.constants = entries, constants
        self._built: OrderedDict[bytes, tuple[Executable, int]] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, call: Call) -> list[np.ndarray]:
        """The results in order. Raises Unsupported for what is not served, and ValueError or what the runtime raises for
        a call that fails."""
        with self._lock, expire(self.deadline, call):
            return self.fault.run(call, self._run) if self.fault else self._run(call)

    def _run(self, asked: Call) -> list[np.ndarray]:
        call = self.runtime.check(asked)
        for dtype in [value.dtype for value in call.values.values()] + [t[0] for _, t in call.results if t]:
            if dtype not in self.runtime.dtypes:
                raise Unsupported(f"{self.runtime.name} takes no {dtype} here; it takes {', '.join(self.runtime.dtypes)}")
        executable = self._prepare(call)
        try:
            results = executable([call.values[name].array for name in call.given()])
        except self.runtime.refusals as error:
            raise Unsupported(f"{self.runtime.name}: {explain(error)}") from error
        except (MemoryError, Unsupported):
            raise
        except Exception as error:
            if NOT_SERVED.search(str(error)):  # Some runtimes find out only while they run.
                raise Unsupported(f"{self.runtime.name}: {explain(error)}") from error
            raise ValueError(f"{self.runtime.name} failed to run it: {explain(error)}") from error
        results = self.runtime.finish(asked, call, list(results))
        if len(results) != len(call.results):
            raise ValueError(f"{self.runtime.name} gave {len(results)} results, {len(call.results)} were asked for")
        return [self._tensor(result) for result in results]

    def _prepare(self, call: Call) -> Executable:
        key = call.key()
        if key in self._built:
            self._built.move_to_end(key)
            return self._built[key][0]
        try:
            executable = self.runtime.prepare(call)
        except (MemoryError, Invalid, Unsupported):
            raise
        except Exception as error:
            raise Unsupported(f"{self.runtime.name}: {explain(error)}") from error
        self._built[key] = executable, sum(v.array.nbytes for v in call.values.values() if v.constant)
        while len(self._built) > 1 and (len(self._built) > self.entries or self._held() > self.constants):
            self._built.popitem(last=False)
        return executable

    def _held(self) -> int:
        return sum(size for _, size in self._built.values())

    def _tensor(self, result: Any) -> np.ndarray:
        if not isinstance(result, (np.ndarray, np.generic)):
            raise Unsupported(f"{self.runtime.name} gave a {type(result).__name__}, which is no tensor")
        if result.dtype not in NAMES:
            raise Unsupported(f"{self.runtime.name} gave elements of {result.dtype}, which TapML does not have")
        return np.asarray(result)


@contextlib.contextmanager
def expire(seconds: Optional[float], call: Call) -> Iterator[None]:
    """Ends the process if what is within takes longer: nothing else ends a runtime that hangs."""
    if seconds is None:
        yield
        return

    def end() -> None:
        names = ", ".join(str(node) for node in call.nodes[:4])
        print(f"error: {names} ran for {seconds:g} s, which is the limit (--deadline)", file=sys.stderr, flush=True)
        os._exit(OUT_OF_TIME)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def explain(error: BaseException, limit: int = 400) -> str:
    """The first line of an error that says something, without places in the runtime's own sources."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith(PREFIXES)]
    lines = [line for line in lines if not (line.endswith(":") and len(line) < 80)] or lines
    compilers = [line.split(" error: ")[1] for line in lines if " error: " in line]
    return (compilers + lines + [type(error).__name__])[0][:limit]


def cast(results: list[np.ndarray], call: Call, default: Optional[np.dtype]) -> list[np.ndarray]:
    """Results of float dtypes in the declared dtypes, or in ``default`` where nothing is declared."""
    made = []
    for result, (_, declared) in zip(results, call.results):
        wanted = DTYPES[declared[0]] if declared else default
        if NAMES.get(getattr(result, "dtype", None)) in FLOATS and NAMES.get(wanted) in FLOATS:
            result = result.astype(wanted)
        made.append(result)
    return made
