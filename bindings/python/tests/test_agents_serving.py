"""How agents of other people's runtimes serve: strangers, tokens, hubs, silent clients, and how they end."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

for package in ("onnx", "onnxruntime", "websockets", "google.protobuf"):
    pytest.importorskip(package, reason=f"{package} is not installed: agents of other runtimes are not tested")

from agents_client import PACKAGE, Agent, Client, Refused  # noqa: E402

from tapml.agents.gen import tapml_pb2 as pb  # noqa: E402

F, I = np.float32, np.int64
X = np.array([[-1.5, 0, 2.5]], F)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """A Python process with the package in its path."""
    environment = {"PYTHONPATH": str(PACKAGE), "PATH": ""}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)


def test_strangers(ort: str) -> None:
    from websockets.sync.client import connect

    place = ort.rsplit("/", 1)[0]
    for frame in (b"\xff" * 40, b"", "text"):
        with connect(place, subprotocols=["tapml.v1"]) as socket:
            socket.send(frame)
            assert b"" != socket.recv(timeout=20)
    with pytest.raises(Refused, match="does not offer"):
        Client(ort + "x")
    assert Client(ort).node("onnx.Relu@14", [X])


def test_it_ends_with_its_standard_input() -> None:
    agent = Agent("reference")
    assert agent.process.poll() is None
    agent.close()
    assert agent.process.returncode == 0


def test_a_runtime_that_is_not_installed() -> None:
    hidden = "import sys, runpy; sys.modules['onnxruntime'] = None; sys.argv = ['', 'ort']; runpy.run_module('tapml.agents', run_name='__main__')"
    done = run_python(hidden)
    assert done.returncode == 2 and done.stderr == "error: ort is not installed: `pip install onnxruntime`\n"


def test_a_provider_that_is_not_there() -> None:
    done = run_python("import sys, runpy; sys.argv = ['', 'ort', '--provider', 'Nope']; runpy.run_module('tapml.agents', run_name='__main__')")
    assert done.returncode == 2 and "no execution provider `Nope` here; it has: " in done.stderr


def test_agents_need_no_extension_module() -> None:
    code = "import sys; sys.modules['tapml._native'] = None; import tapml.agents.__main__, tapml; print('loaded'); tapml.tensor"
    done = run_python(code)
    assert done.stdout == "loaded\n" and "tapml.tensor needs the extension module" in done.stderr
    done = run_python("import sys, tapml.agents; sys.exit('tapml._native' in sys.modules)")
    assert done.returncode == 0


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    agents = [sys.executable, "-m", "tapml.agents", "reference", "--listen", "0.0.0.0:0"]
    done = subprocess.run(agents, capture_output=True, text=True, env={"PYTHONPATH": str(PACKAGE)}, timeout=60)
    assert done.returncode == 2 and "--token-file" in done.stderr
    token = tmp_path / "token"
    token.write_text("secret\n")
    agent = Agent("reference", "--token-file", str(token))
    with pytest.raises(Refused, match="token"):
        Client(agent.address)
    (y,) = Client(agent.address, token="secret").node("onnx.Relu@14", [X])
    np.testing.assert_array_equal(y, [[0, 0, 2.5]])
    agent.close()


def test_a_runtime_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import time, numpy as np\n"
        "from tapml.agents import OnnxRuntime, serve\n"
        "class Mine(OnnxRuntime):\n"
        "    name, dtypes = 'mine', ('f32',)\n"
        "    def build(self, model, call):\n"
        "        if model.graph.node[0].op_type != 'Relu':\n"
        "            raise NotImplementedError('Relu is all that mine runs')\n"
        "        return lambda arrays: [time.sleep(1) or np.maximum(arrays[0], 0)]\n"
        "serve(Mine())\n"
    )
    agent = Agent(entry=(str(tmp_path / "mine.py"),))
    client = Client(agent.address)
    # A ping is answered while the operator runs.
    call = pb.CallNode(op="onnx.Relu@14", attributes="{}", inputs=[client.tensor(X)])
    client.send(call_node=call)
    client.send(ping=pb.Ping())
    assert client.receive().WhichOneof("reply") == "pong"
    assert client.receive().WhichOneof("reply") == "node_result"
    with pytest.raises(Refused, match="Relu is all") as error:
        client.node("onnx.Abs@13", [X])
    assert error.value.kind == "UNSUPPORTED"
    with pytest.raises(Refused, match="takes no i64"):
        client.node("onnx.Relu@14", [np.zeros(2, I)])
    agent.close()


def test_behind_a_hub() -> None:
    """A hub of a few lines: it registers the agent, asks for a session, and is its client."""
    from websockets.sync.server import serve

    heard, answered = {}, threading.Event()

    def hub(socket: object) -> None:
        path = socket.request.path  # type: ignore[attr-defined]
        if path == "/agent":
            heard["register"] = pb.AgentToHub.FromString(socket.recv()).register  # type: ignore[attr-defined]
            for word in (pb.HubToAgent(registered=pb.Registered(name="lab")), pb.HubToAgent(open=pb.Open(session="s1", target="ort"))):
                socket.send(word.SerializeToString())  # type: ignore[attr-defined]
            answered.wait(20)
        else:
            heard["path"] = path
            hello = pb.Hello(version_min=1, version_max=1, target="ort")
            socket.send(pb.ToAgent(seq=1, hello=hello).SerializeToString())  # type: ignore[attr-defined]
            heard["welcome"] = pb.ToClient.FromString(socket.recv()).welcome  # type: ignore[attr-defined]
            answered.set()

    with serve(hub, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        command = [sys.executable, "-m", "tapml.agents", "ort", "--hub", address, "--until-stdin-closes"]
        agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(PACKAGE)})
        assert answered.wait(30)
        assert agent.stdout and agent.stdin
        assert agent.stdout.readline() == f"serving at {address} as hub/lab/ort\n"
        agent.stdin.close()
        assert agent.wait(20) == 0
        server.shutdown()
    assert heard["path"] == "/session/s1" and heard["welcome"].device.platform == "ort"
    assert [offer.name for offer in heard["register"].devices] == ["ort"] and heard["register"].capabilities == ["graphs"]


def test_a_client_that_does_not_read_keeps_its_session() -> None:
    hasty = (
        "import runpy, websockets.sync.server as server; serve = server.serve\n"
        "server.serve = lambda *a, **k: serve(*a, **{'ping_interval': 0.1, 'ping_timeout': 0.2, **k})\n"
        "runpy.run_module('tapml.agents', run_name='__main__')"
    )
    agent = Agent("reference", entry=("-c", hasty))
    host, port = agent.address.split("/")[2].rsplit(":", 1)
    hello = f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    hello += "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: tapml.v1\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(hello.encode())
        time.sleep(1.5)
        answer, frames = client.recv(1 << 16).split(b"\r\n\r\n", 1)
    assert answer.startswith(b"HTTP/1.1 101 "), answer
    kinds = set()
    while frames:
        kinds.add(frames[0] & 15)
        frames = frames[2 + frames[1] :]
    assert kinds == {9}, "pings, and no frame that closes"
    agent.close()
