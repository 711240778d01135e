"""A small client of the wire, and ONNX nodes as it bears them. Used by test_agents.py and tools/node_tests.py."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import numpy as np

from tapml.agents._calls import NAMES, decode
from tapml.agents.gen import tapml_pb2 as pb

PACKAGE = Path(__file__).resolve().parents[1] / "python"


class Refused(Exception):
    """A Failed; ``kind`` is its word, such as UNSUPPORTED."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Agent:
    """An agent in a process of its own."""

    def __init__(self, *arguments: str, entry: tuple[str, ...] = ("-m", "tapml.agents")) -> None:
        command = [sys.executable, *entry, *arguments, "--listen", "127.0.0.1:0", "--until-stdin-closes"]
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line.startswith("serving at ws://"), line
        self.address = line.split(" at ")[1]

    def close(self) -> None:
        """Closes its standard input, upon which it ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


class Client:
    """One session."""

    def __init__(self, address: str, token: str = "") -> None:
        from websockets.sync.client import connect

        self.seq = 0
        place, target = address.rsplit("/", 1)
        self.socket = connect(place, subprotocols=["tapml.v1"], max_size=16 << 20, compression=None).__enter__()
        hello = pb.Hello(version_min=1, version_max=1, client="test", token=token, target=target)
        self.welcome = self.request(hello=hello).welcome

    def send(self, **request: Any) -> None:
        """Sends a request and hears nothing."""
        self.seq += 1
        self.socket.send(pb.ToAgent(seq=self.seq, **request).SerializeToString())

    def receive(self) -> Any:
        """The next message, whichever request it answers."""
        return pb.ToClient.FromString(self.socket.recv(timeout=120))

    def request(self, **request: Any) -> Any:
        """The answer to a request."""
        self.send(**request)
        reply = self.receive()
        assert reply.seq == self.seq
        if reply.HasField("failed"):
            kind = pb.ErrorKind.Name(reply.failed.kind).replace("ERROR_KIND_", "")
            raise Refused(kind, reply.failed.message)
        return reply

    def tensor(self, array: Optional[np.ndarray], constant: bool = False) -> Any:
        """An array on the wire; None is an absent one."""
        if array is None:
            return pb.Tensor(absent=True)
        dtype = NAMES[array.dtype]
        return pb.Tensor(dtype=dtype, shape=array.shape, data=array.tobytes(), constant=constant)

    def put(self, handle: int, array: np.ndarray) -> None:
        """Has the agent hold a tensor."""
        self.request(put_tensor=pb.PutTensor(tensor=pb.Tensor(handle=handle, **tensor_fields(array))))

    def node(self, op: str, inputs: list[Any], constants: tuple[int, ...] = (), keep: tuple[int, ...] = (),
             outputs: Any = (), **attributes: Any) -> list[Optional[np.ndarray]]:  # fmt: skip
        """Calls one node. Inputs are arrays, None or messages; ``outputs`` declares types, as arrays like them."""
        made = [i if isinstance(i, pb.Tensor) else self.tensor(i, n in constants) for n, i in enumerate(inputs)]
        types = [pb.Tensor(absent=True) if o is None else pb.Tensor(dtype=o[0], shape=o[1]) for o in outputs]
        text = json.dumps(attributes)
        call = pb.CallNode(node="n", op=op, attributes=text, inputs=made, keep=keep, outputs=types)
        return self.results(self.request(call_node=call), keep)

    def graph(self, nodes: list[tuple[str, dict[str, Any], list[str], list[str]]], values: dict[str, np.ndarray],
              outputs: list[str], constants: tuple[str, ...] = ()) -> list[Optional[np.ndarray]]:  # fmt: skip
        """Calls several nodes: (operator, attributes, inputs, outputs)."""
        made = [
            pb.GraphNode(node=f"n{i}", op=op, attributes=json.dumps(a), inputs=given, outputs=results)
            for i, (op, a, given, results) in enumerate(nodes)
        ]
        tensors = [self.tensor(array, name in constants) for name, array in values.items()]
        call = pb.CallGraph(name="g", nodes=made, inputs=list(values), values=tensors, outputs=outputs)
        return self.results(self.request(call_graph=call), ())

    def results(self, first: Any, keep: tuple[int, ...]) -> list[Optional[np.ndarray]]:
        """The arrays of a NodeResult and of the pieces that follow; None for those absent or held."""
        types, data, last = first.node_result.outputs, first.node_result.data, first.node_result.last
        while not last:
            reply = self.receive()
            assert reply.seq == self.seq and not reply.node_result.outputs
            data, last = data + reply.node_result.data, reply.node_result.last
        arrays: list[Optional[np.ndarray]] = []
        for place, tensor in enumerate(types):
            if tensor.absent or (place < len(keep) and keep[place]):
                arrays.append(None)
                continue
            size = math.prod(tensor.shape) * np.dtype(decode(tensor.dtype, [0], b"").dtype).itemsize
            arrays.append(decode(tensor.dtype, tensor.shape, data[:size]))
            data = data[size:]
        assert not data
        return arrays


def tensor_fields(array: np.ndarray) -> dict[str, Any]:
    """Fields of a Tensor."""
    return {"dtype": NAMES[array.dtype], "shape": array.shape, "data": array.tobytes()}


def encode_float(value: float) -> Any:
    """A float attribute in JSON: the shortest digits that give the same f32."""
    if not math.isfinite(value):
        return {"float": encode_word(value)}
    return float(str(np.float32(value)))


def encode_word(value: float) -> Any:
    """A float in a list or a tensor."""
    return float(value) if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def encode_attribute(attribute: Any) -> Any:
    """The JSON of an AttributeProto. Raises KeyError for graphs and what else is never sent."""
    import onnx

    kinds = onnx.AttributeProto
    if attribute.type == kinds.INT:
        return attribute.i
    if attribute.type == kinds.FLOAT:
        return encode_float(attribute.f)
    if attribute.type == kinds.STRING:
        return attribute.s.decode()
    if attribute.type == kinds.TENSOR:
        array = onnx.numpy_helper.to_array(attribute.t)
        flat = array.reshape(-1).tolist() if array.dtype.kind in "iub" else [encode_word(v) for v in array.reshape(-1)]
        return {"tensor": {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data": flat}}
    if attribute.type == kinds.INTS:
        return list(attribute.ints) or {"ints": []}
    if attribute.type == kinds.FLOATS:
        found = [encode_word(float(str(np.float32(v)))) for v in attribute.floats]
        return found if found and not any(isinstance(v, str) for v in found) else {"floats": found}
    if attribute.type == kinds.STRINGS:
        return [s.decode() for s in attribute.strings] or {"strings": []}
    raise KeyError(f"attribute {attribute.name} of type {kinds.AttributeType.Name(attribute.type)}")


def encode_node(node: Any, opsets: dict[str, int]) -> tuple[str, dict[str, Any]]:
    """Operator and attributes of a NodeProto as the wire has them."""
    domain = node.domain or "onnx"
    attributes = {a.name: encode_attribute(a) for a in node.attribute}
    return f"{domain}.{node.op_type}@{opsets[node.domain]}", attributes
