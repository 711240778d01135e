"""The command line of an agent."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import threading
from typing import Any, Optional

from ._executor import DEADLINE, Executor, Runtime

LOCAL = ("127.0.0.1", "localhost", "[::1]")


def make_parser(names: list[str]) -> argparse.ArgumentParser:
    """The options of every agent; with several runtimes the first argument chooses one."""
    parser = argparse.ArgumentParser(
        prog="python -m tapml.agents" if names else None, description="Serves a runtime's operators to TapML."
    )
    if names:
        parser.add_argument("runtime", nargs="?", choices=names, help="what runs the operators")
        parser.add_argument("--provider", help="ort: the execution provider, such as CUDAExecutionProvider")
        parser.add_argument("--list-runtimes", action="store_true", help="what is installed, as JSON, an object a line")
        parser.add_argument("--device", help="the runtime's word for its device, such as GPU, vulkan or 0")
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:7071", help="port 0 chooses a free one")
    parser.add_argument("--hub", metavar="URL", help="dial this hub, such as ws://127.0.0.1:7071, instead of listening")
    parser.add_argument("--name", default="", help="the agent's name at the hub")
    parser.add_argument("--sessions", type=int, default=4, help="sessions that the hub may open at once")
    parser.add_argument("--token-file", metavar="FILE", help="a file with the token that clients, or the hub, ask for")
    parser.add_argument("--deadline", metavar="SECONDS", type=float, default=DEADLINE, help="the agent ends if a call takes longer")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when the standard input is closed")
    parser.add_argument("--fault", metavar="NAME", help="for measuring: compute one thing wrongly, see --list-faults")
    parser.add_argument("--write-program", metavar="DIR", help="write a call, read as JSON, as a program, and print the lines that run it")
    parser.add_argument("--list-faults", action="store_true", help="one fault a line, as JSON")
    return parser


def serve(runtime: Runtime, arguments: Optional[list[str]] = None) -> None:
    """Serves a runtime as the command line says: the entry of an agent of one's own."""
    end(run, make_parser([]).parse_args(arguments), lambda options: runtime)


def end(function: Any, *arguments: Any) -> None:
    """Calls a function; what is wrong with the machine or the command line is one sentence and the exit code 2."""
    try:
        function(*arguments)
    except (LookupError, OSError) as error:
        sys.exit(fail(str(error.args[0] if isinstance(error, LookupError) else error)))
    except KeyboardInterrupt:
        sys.exit(130)


def fail(message: str) -> int:
    """Says what is wrong."""
    print(f"error: {message}", file=sys.stderr)
    return 2


def run(options: argparse.Namespace, make_runtime: Any) -> None:
    """What the options ask for."""
    if options.list_faults:
        from .faults import FAULTS

        for known in FAULTS.values():
            print(json.dumps(known.describe()))
        return
    if options.write_program:
        from ._scripts import write_program

        print(write_program(getattr(options, "runtime", ""), json.load(sys.stdin), pathlib.Path(options.write_program)))
        return
    fault: Any = None
    if options.fault:
        from .faults import FAULTS

        if options.fault not in FAULTS:
            raise LookupError(f"no fault `{options.fault}`; --list-faults names them")
        fault = FAULTS[options.fault]
    try:
        import google.protobuf  # noqa: F401
        import websockets.sync.server  # noqa: F401
    except ImportError as error:
        raise LookupError(f"{error.name} is not installed: `pip install 'tapml[agents]'`") from None
    from ._wire import Agent, dial, end_with_stdin, listen

    host, _, port = options.listen.rpartition(":")
    if not host or not port.isdigit():
        raise LookupError(f"--listen expects HOST:PORT, found `{options.listen}`")
    token = pathlib.Path(options.token_file).read_text().strip() if options.token_file else ""
    if not options.hub and not token and host not in LOCAL:
        raise LookupError(f"who reaches {host} could use this agent: --token-file names a file with a token")
    if not 0 < options.deadline <= threading.TIMEOUT_MAX:
        raise LookupError(f"--deadline expects seconds, found {options.deadline:g}")
    agent = Agent(Executor(make_runtime(options), fault, deadline=options.deadline), token)
    if options.until_stdin_closes:
        end_with_stdin()
    if options.hub:
        dial(agent, options.hub, options.name, token, options.sessions)
    else:
        listen(agent, options.listen)
