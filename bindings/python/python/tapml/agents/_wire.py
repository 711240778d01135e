"""The conversation of ``crates/rpc/proto/tapml.proto``: sessions, listening, and dialling a hub."""

from __future__ import annotations

import hmac
import math
import os
import sys
import threading
import time
import uuid
from collections import deque
from typing import Any, Callable, Optional

from ._calls import Unsupported, Value, decode, find_dtype, parse_graph, parse_node
from ._executor import DEADLINE, Executor
from .gen import tapml_pb2 as pb

#: Most bytes of results in one message, and of a message.
PIECE, MESSAGE = 4 << 20, 16 << 20
#: Most bytes of tensors that a session may hold.
MEMORY = 16 << 30
#: Most bytes and messages that wait while a request runs; thereafter the session is not read.
WAITING, MESSAGES = 2 * MESSAGE, 16_384


class Agent:
    """One runtime, served to any number of sessions."""

    def __init__(self, executor: Executor, token: str = "") -> None:
        self.executor, self.runtime, self.token = executor, executor.runtime, token
        fault = [executor.fault.name] if executor.fault else []
        version = self.runtime.fingerprint(*fault)
        self.info = pb.DeviceInfo(
            platform=self.runtime.name,
            name=" ".join([self.runtime.title, *fault]),
            driver=f"Python {sys.version.split()[0]}",
            kind=pb.ADAPTER_KIND_OTHER,
            ops=[
                pb.ServedOp(name=name, dtypes=self.runtime.dtypes, accumulate=self.runtime.accumulate_of(name), version=version)
                for name in self.runtime.served()
            ],
        )
        self.capabilities = ["graphs"] if self.runtime.graphs else []

    def welcome(self, hello: Any, trusted: bool) -> Any:
        """The answer to a Hello."""
        if not hello.version_min <= 1 <= hello.version_max:
            asked = f"{hello.version_min} to {hello.version_max}"
            raise Unsupported(f"the agent speaks version 1, the client {asked}")
        if not trusted and not hmac.compare_digest(hello.token.encode(), self.token.encode()):
            raise ValueError("the token is not the agent's; `--token-file` names a file with it")
        if hello.target.split("?")[0] not in ("", self.runtime.name):
            raise Unsupported(f"the agent does not offer `{hello.target[:80]}`; it offers: {self.runtime.name}")
        limits = pb.SessionLimits(
            max_message=MESSAGE, window=MESSAGE, deadline_ms=round(1000 * (self.executor.deadline or DEADLINE)), idle_ms=3_600_000, memory=MEMORY
        )
        offers = [] if hello.target else [pb.Offer(name=self.runtime.name, info=self.info)]
        device = self.info if hello.target else None
        return pb.Welcome(
            version=1, agent="tapml.agents", limits=limits, devices=offers, device=device, capabilities=self.capabilities
        )

    def serve(self, socket: Any, trusted: bool = False) -> None:
        """One client, from its Hello to its end."""
        Session(self, socket, trusted).run()


class Session:
    """One client. A thread of its own runs requests in order, so that pings are answered while one runs."""

    def __init__(self, agent: Agent, socket: Any, trusted: bool) -> None:
        self.agent, self.socket, self.trusted = agent, socket, trusted
        self.held: dict[int, Value] = {}
        self.partial: dict[int, tuple[Any, bytearray]] = {}
        self.open = self.ended = False
        self._queue: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._sending = threading.Lock()

    def run(self) -> None:
        """Reads until the client goes."""
        from websockets.exceptions import ConnectionClosed

        worker = threading.Thread(target=self._work, daemon=True)
        worker.start()
        try:
            for frame in self.socket:
                if not self._take(frame):
                    break
        except ConnectionClosed:
            pass
        finally:
            with self._changed:
                self.ended = True
                self._changed.notify_all()
            worker.join()

    def _take(self, frame: Any) -> bool:
        message = pb.ToAgent()
        try:
            if isinstance(frame, str):
                raise ValueError("messages are binary")
            message.ParseFromString(frame)
            if not message.seq:
                raise ValueError("a request has a number, from 1 on")
        except Exception as error:  # Nobody knows where such a client stands: its session ends.
            self.fail(0, error)
            return False
        if message.WhichOneof("request") == "ping" and self.open:
            self.reply(message.seq, pong=pb.Pong())
            return True
        with self._changed:
            while not self.ended and (self._bytes > WAITING or len(self._queue) >= MESSAGES):
                self._changed.wait(1)
            self._queue.append((message, len(frame)))
            self._bytes += len(frame)
            self._changed.notify_all()
            return not self.ended

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self.ended:
                    self._changed.wait()
                if self.ended:
                    return
                message, size = self._queue.popleft()
                self._bytes -= size
                self._changed.notify_all()
            try:
                self._request(message)
            except Exception as error:  # Whatever it is, the client shall read it.
                self.fail(message.seq, error)
            if not self.open:
                self.ended = True
                self.socket.close()

    def _request(self, message: Any) -> None:
        kind = message.WhichOneof("request")
        request: Any = getattr(message, kind) if kind else None
        if not self.open:
            if kind != "hello":
                raise ValueError("the first message must be a Hello")
            welcome = self.agent.welcome(request, self.trusted)
            self.open = True
            self.reply(message.seq, welcome=welcome)
        elif kind == "put_tensor":
            self._put(request)
            self.reply(message.seq, done=pb.Done())
        elif kind == "drop_tensor":
            self.held.pop(request.handle, None)
        elif kind in ("call_node", "call_graph"):
            self._call(message.seq, request, kind == "call_graph")
        elif kind != "cancel":
            raise Unsupported(f"this agent runs operators; it does not know {kind or 'this request'}")

    def _put(self, request: Any) -> None:
        tensor = request.tensor
        if not tensor.handle:
            raise ValueError("a tensor that is put has a handle, from 1 on")
        declared, data = self.partial.pop(tensor.handle, (tensor, bytearray()))
        if (declared.dtype, list(declared.shape)) != (tensor.dtype, list(tensor.shape)):
            raise ValueError("the pieces of a tensor have the same dtype and shape")
        need = math.prod(tensor.shape) * find_dtype(tensor.dtype).itemsize
        if len(data) + len(tensor.data) > need:
            raise ValueError(f"{tensor.dtype}{list(tensor.shape)} needs {need} bytes, found more")
        self._make_room(need)
        data += tensor.data
        if request.more:
            self.partial[tensor.handle] = tensor, data
        else:
            self.held[tensor.handle] = Value(decode(tensor.dtype, tensor.shape, bytes(data)), tensor.constant)

    def _make_room(self, need: int) -> None:
        partial = sum(len(data) for _, data in self.partial.values())
        if partial + sum(value.array.nbytes for value in self.held.values()) + need > MEMORY:
            raise MemoryError(f"a session holds at most {MEMORY} bytes of tensors")

    def _input(self, tensor: Any) -> Optional[Value]:
        if tensor.absent:
            return None
        if not tensor.handle:
            return Value(decode(tensor.dtype, tensor.shape, tensor.data), tensor.constant)
        if tensor.handle not in self.held:
            raise ValueError(f"no tensor is held under the handle {tensor.handle}")
        held = self.held[tensor.handle]
        if tensor.constant and not held.constant:
            # The held tensor keeps its hash: large weights are not hashed in every call.
            return Value(held.array, True, held.digest())
        return held

    def _call(self, seq: int, request: Any, graph: bool) -> None:
        tensors = request.values if graph else request.inputs
        values = [self._input(tensor) for tensor in tensors]
        call = (parse_graph if graph else parse_node)(request, values)
        arrays = self.agent.executor.run(call)
        declared = request.types if graph else request.outputs
        absent = [bool(t.absent) for t in declared] or [False] * len(arrays)
        if graph and any(absent):
            raise ValueError("a result of a graph is never absent")
        rest, types, parts = iter(arrays), [], []
        keep = list(request.keep) + [0] * (len(absent) - len(request.keep))
        for gone, handle in zip(absent, keep):
            if gone:
                types.append(pb.Tensor(absent=True))
                continue
            value = Value(next(rest))
            types.append(pb.Tensor(dtype=value.dtype, shape=value.array.shape))
            if handle:
                self._make_room(value.array.nbytes)
                self.held[handle] = value
            else:
                parts.append(value.array.tobytes())
        data = b"".join(parts)
        for at in range(0, len(data) or 1, PIECE):
            piece, last = data[at : at + PIECE], at + PIECE >= len(data)
            self.reply(seq, node_result=pb.NodeResult(outputs=[] if at else types, data=piece, last=last))

    def reply(self, seq: int, **message: Any) -> None:
        """Sends one message; a client that has gone is no error."""
        from websockets.exceptions import ConnectionClosed

        try:
            with self._sending:
                self.socket.send(pb.ToClient(seq=seq, **message).SerializeToString())
        except ConnectionClosed:
            pass

    def fail(self, seq: int, error: Exception) -> None:
        """Tells what went wrong with a request."""
        kinds = [(Unsupported, pb.ERROR_KIND_UNSUPPORTED), (MemoryError, pb.ERROR_KIND_OUT_OF_MEMORY)]
        kind = next((k for t, k in kinds if isinstance(error, t)), pb.ERROR_KIND_INVALID_INPUT)
        plain = isinstance(error, (Unsupported, ValueError, MemoryError))
        text = str(error) if plain and str(error) else f"{type(error).__name__}: {error}"
        self.reply(seq, failed=pb.Failed(kind=kind, message=text[:2000]))


# Of the WebSocket of a session. Pings keep it open on the way, but their answers have no limit of time: a client reads only
# while it waits for an answer, and may be busy with another platform for minutes.
SESSION: dict[str, Any] = {"subprotocols": ["tapml.v1"], "max_size": MESSAGE, "compression": None, "ping_timeout": None}


def claim_output() -> Callable[[str], None]:
    """A function that prints a line to the standard output. What runtimes print there goes to the standard error instead:
    whoever started the agent may read no further than the line that says where it serves."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return lambda line: print(line, file=output, flush=True)


def listen(agent: Agent, address: str) -> None:
    """Serves clients that dial; says where in one line."""
    from websockets.sync.server import serve

    host, port = address.rsplit(":", 1)
    # Web pages are not let in: any page could use an agent on its visitor's own machine.
    with serve(agent.serve, host.strip("[]"), int(port), origins=[None], **SESSION) as server:
        place = server.socket.getsockname()[1]
        claim_output()(f"serving at ws://{host}:{place}/{agent.runtime.name}")
        server.serve_forever()


def dial(agent: Agent, hub: str, name: str, token: str, sessions: int) -> None:
    """Registers at a hub, and serves every session that it asks for on a connection of its own. Dials again when the
    connection breaks."""
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    hub, known, pause = hub.rstrip("/"), False, 1.0
    for_hub: dict[str, Any] = {"subprotocols": ["tapml.hub.v1"], "max_size": MESSAGE, "compression": None}
    say = claim_output()
    register = pb.Register(
        version_min=1, version_max=1, name=name, token=token, agent="tapml.agents", instance=uuid.uuid4().hex,
        devices=[pb.Offer(name=agent.runtime.name, info=agent.info, sessions=sessions)], capabilities=agent.capabilities,
    )  # fmt: skip

    def visit(session: str) -> None:
        with connect(f"{hub}/session/{session}", **SESSION) as socket:
            agent.serve(socket, trusted=True)

    while True:
        try:
            with connect(f"{hub}/agent", **for_hub) as socket:
                socket.send(pb.AgentToHub(register=register).SerializeToString())
                for frame in socket:
                    word = pb.HubToAgent.FromString(frame)
                    if word.HasField("registered"):
                        known, pause = True, 1.0
                        say(f"serving at {hub} as hub/{word.registered.name}/{agent.runtime.name}")
                    elif word.HasField("open"):
                        threading.Thread(target=visit, args=[word.open.session], daemon=True).start()
                    elif word.HasField("failed"):
                        raise LookupError(f"the hub at {hub} refused the agent: {word.failed.message}")
        except (OSError, WebSocketException) as error:
            if not known:
                raise LookupError(f"no hub answers at {hub}: {error}") from None
        time.sleep(pause)
        pause = min(2 * pause, 30.0)


def end_with_stdin(exit: Callable[[int], None] = os._exit) -> None:
    """Ends the process when its standard input closes, so that it does not outlive the one that started it."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        exit(0)

    threading.Thread(target=wait, daemon=True).start()
