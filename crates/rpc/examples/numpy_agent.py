#!/usr/bin/env python3
"""A TapML device agent in plain Python: operators computed by NumPy. docs/guide/own-backend.md walks through it.

pip install numpy websockets grpcio-tools
python numpy_agent.py --listen 127.0.0.1:7071
tapml check SUITE --target ws://127.0.0.1:7071/numpy
"""
import argparse, hashlib, inspect, json, pathlib, sys, tempfile, threading, uuid
import numpy as np
from grpc_tools import protoc
from websockets.sync.client import connect
from websockets.sync.server import serve

HERE = pathlib.Path(__file__).resolve()
PIECE = 4 << 20  # Most bytes of results in one message.

with tempfile.TemporaryDirectory() as folder:  # The schema becomes a module whenever the agent starts.
    protoc.main(["protoc", f"-I{HERE.parents[1] / 'proto'}", f"--python_out={folder}", "tapml.proto"])
    sys.path.insert(0, folder)
    import tapml_pb2 as pb


class Unsupported(Exception):
    """This agent does not serve what is asked, which is no mistake of anybody's."""


# --- Tensors are (dtype, array); f16 and bf16 are computed in f32.

NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "u32": np.uint32}


def decode(dtype, shape, data):
    array = np.frombuffer(data, NUMPY[dtype]).reshape(tuple(shape))
    if dtype == "bf16":  # The upper half of an f32.
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return dtype, array.astype(np.float32) if dtype == "f16" else array


def encode(dtype, array):
    array = np.ascontiguousarray(array, np.float32)
    if dtype == "bf16":  # To nearest, ties to even.
        bits = array.view(np.uint32)
        array = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return array.astype(NUMPY[dtype]).tobytes()


# --- Operators: tensors are positional, attributes keywords; n and p are the sizes of this step. The maths of NAME is in
# the docs of crates/graph/src/op/NAME.rs.

def rms_norm(x, w=None, *, eps, offset=0.0, group=None):
    rows = x.reshape(len(x), -1, group or x.shape[1])
    rows = rows / np.sqrt(np.mean(rows * rows, axis=-1, keepdims=True) + np.float32(eps))
    if w is not None:
        rows = rows * (w.reshape(-1, rows.shape[-1]) + np.float32(offset))
    return rows.reshape(x.shape)

def rope_angles(*, n, p, inv_freq, scale):
    # The digits of an attribute are those of an f32, but not its exact value.
    angles = (p + np.arange(n))[:, None] * np.array(inv_freq, np.float32).astype(np.float64)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * np.float32(scale)

def rope(x, angles, *, head_dim, rotary_dim, interleaved=False):
    heads, half = x.reshape(len(x), -1, head_dim), rotary_dim // 2
    cos, sin = angles[:, None, :half], angles[:, None, half:]
    pairs = slice(0, rotary_dim, 2), slice(1, rotary_dim, 2)
    first, second = pairs if interleaved else (slice(0, half), slice(half, rotary_dim))
    a, b, out = heads[..., first], heads[..., second], heads.copy()
    out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
    return out.reshape(x.shape)

def attention(q, k, v, *, p, heads, kv_heads, head_dim, scale, value_dim=None, causal=True, window=None):
    def split(x, count):  # [rows, count·d] to [heads, rows, d].
        return np.repeat(x.reshape(len(x), count, -1).swapaxes(0, 1), heads // count, axis=0)

    scores = split(q, heads) @ split(k, kv_heads).swapaxes(1, 2) * np.float32(scale)
    t, j = (p + np.arange(len(q)))[:, None], np.arange(len(k))
    seen = (j <= t) & (j > t - (window or len(k) + 1)) if causal else np.full((len(q), len(k)), True)
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out = weights / weights.sum(axis=-1, keepdims=True) @ split(v, kv_heads)
    return out.swapaxes(0, 1).reshape(len(q), -1)

silu = lambda x: x / (1 + np.exp(-x))

OPS = {
    "silu": silu, "rms_norm": rms_norm, "rope_angles": rope_angles, "rope": rope, "attention": attention,
    "embedding": lambda ids, table, *, dtype: table[ids],
    "linear": lambda x, w, b=0, *, dtype=None: x @ w.T + b,
    "add_rms_norm": lambda a, b, w=None, *, eps, offset=0.0: (a + b, rms_norm(a + b, w, eps=eps, offset=offset)),
    "append": lambda cache, new: np.concatenate([cache, new]),
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "gated_linear": lambda x, gate, up: silu(x @ gate.T) * (x @ up.T),
    "last_row": lambda x: x[-1:],
}


def run(op, attributes, symbols, inputs):
    """The outputs of a node as (dtype, array)."""
    if op not in OPS:
        raise Unsupported(f"this agent does not serve `{op}`")
    known = inspect.signature(OPS[op]).parameters
    tensors = [name for name, k in known.items() if k.kind is k.POSITIONAL_OR_KEYWORD]
    if (unknown := set(attributes) - set(known)) or len(inputs) > len(tensors):
        raise Unsupported(f"`{op}` is not served with {', '.join(sorted(unknown)) or 'so many inputs'}")
    sizes = {name: value for name, value in symbols.items() if name in known}
    with np.errstate(over="ignore"):
        outputs = OPS[op](*[array for _, array in inputs], **attributes, **sizes)
    dtype = attributes.get("dtype") or (inputs[0][0] if inputs else "f32")
    return [(dtype, array) for array in (outputs if isinstance(outputs, tuple) else (outputs,))]


# --- The wire.

def info():
    code = hashlib.sha256(HERE.read_bytes() + repr(options.break_op).encode()).hexdigest()[:16]
    ops = [pb.ServedOp(name=name, dtypes=list(NUMPY), accumulate="f32", version=code) for name in OPS]
    driver = f"Python {sys.version.split()[0]}"
    return pb.DeviceInfo(platform="numpy", name=f"NumPy {np.__version__}", driver=driver, ops=ops)


def welcome(hello):
    if not hello.version_min <= 1 <= hello.version_max:
        raise Unsupported(f"the agent speaks version 1, the client {hello.version_min} to {hello.version_max}")
    if hello.target not in ("", "numpy"):
        raise Unsupported(f"the agent does not offer `{hello.target}`; it offers: numpy")
    limits = pb.SessionLimits(max_message=16 << 20, window=16 << 20, deadline_ms=300_000, idle_ms=3_600_000, memory=1 << 40)
    devices, device = ([], info()) if hello.target else ([pb.Offer(name="numpy", info=info())], None)
    return pb.Welcome(version=1, agent="numpy_agent.py", limits=limits, devices=devices, device=device)


def session(socket):
    """One client, from its Hello to its end. What goes wrong with a request is told, and the next one is served."""
    held, partial, state = {}, {}, "new"

    def reply(**message):
        socket.send(pb.ToClient(seq=seq, **message).SerializeToString())

    for frame in socket:
        seq, message = 0, pb.ToAgent()
        try:
            message.ParseFromString(frame)
            seq, kind = message.seq, message.WhichOneof("request")
            request = getattr(message, kind or "ping")
            if state == "new":
                if kind != "hello":
                    raise ValueError("the first message must be a Hello")
                reply(welcome=welcome(request))
                state = "open"
            elif kind == "ping":
                reply(pong=pb.Pong())
            elif kind == "put_tensor":
                tensor = request.tensor
                data = partial.pop(tensor.handle, b"") + tensor.data
                if request.more:
                    partial[tensor.handle] = data
                else:
                    held[tensor.handle] = decode(tensor.dtype, tensor.shape, data)
                reply(done=pb.Done())
            elif kind == "drop_tensor":
                held.pop(request.handle, None)  # Not answered.
            elif kind == "call_node":
                call(request, held, reply)
            elif kind != "cancel":
                raise Unsupported(f"this agent runs operators; it does not know {kind or 'this request'}")
        except Exception as error:  # Whatever it is, the client shall read it.
            kind = pb.ERROR_KIND_UNSUPPORTED if isinstance(error, Unsupported) else pb.ERROR_KIND_INVALID_INPUT
            reply(failed=pb.Failed(kind=kind, message=f"{type(error).__name__}: {error}"))
            if state == "new" or seq == 0:
                return


def call(request, held, reply):
    inputs = [held[t.handle] if t.handle else decode(t.dtype, t.shape, t.data) for t in request.inputs]
    symbols = {symbol.name: symbol.value for symbol in request.symbols}
    outputs = run(request.op, json.loads(request.attributes), symbols, inputs)
    if request.op == options.break_op:
        outputs = [(dtype, array * np.float32(1.001)) for dtype, array in outputs]
    types, data = [pb.Tensor(dtype=dtype, shape=array.shape) for dtype, array in outputs], b""
    for handle, (dtype, array) in zip(request.keep, outputs):
        if handle:
            held[handle] = decode(dtype, array.shape, encode(dtype, array))
        else:
            data += encode(dtype, array)
    for at in range(0, len(data) or 1, PIECE):
        last = at + PIECE >= len(data)
        reply(node_result=pb.NodeResult(outputs=[] if at else types, data=data[at : at + PIECE], last=last))


def dial(hub, sessions):
    """Registers at a hub, and serves every session that it asks for on a connection of its own."""
    device = pb.Offer(name="numpy", info=info(), sessions=sessions)
    register = pb.Register(version_min=1, version_max=1, name="python", agent="numpy_agent.py", instance=uuid.uuid4().hex, devices=[device])
    settings = {"max_size": 16 << 20, "compression": None}

    def visit(id):
        with connect(f"{hub}/session/{id}", subprotocols=["tapml.v1"], **settings) as socket:
            session(socket)

    with connect(f"{hub}/agent", subprotocols=["tapml.hub.v1"], **settings) as socket:
        socket.send(pb.AgentToHub(register=register).SerializeToString())
        for frame in socket:
            word = pb.HubToAgent.FromString(frame)
            if word.HasField("registered"):
                print(f"serving at {hub} as hub/{word.registered.name}/numpy", flush=True)
            elif word.HasField("open"):
                threading.Thread(target=visit, args=[word.open.session], daemon=True).start()
            elif word.HasField("failed"):
                raise SystemExit(word.failed.message)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listen", default="127.0.0.1:7071", help="address and port; port 0 chooses a free one")
    parser.add_argument("--hub", help="dial this hub, such as ws://127.0.0.1:7071, instead of listening")
    parser.add_argument("--sessions", type=int, default=4, help="sessions that the hub may open at once")
    parser.add_argument("--break", dest="break_op", metavar="OP", help="give wrong results for this operator")
    options = parser.parse_args()
    if options.hub:
        sys.exit(dial(options.hub, options.sessions))
    host, port = options.listen.rsplit(":", 1)
    # Web pages are not let in: any page could use an agent on its visitor's own machine.
    settings = {"subprotocols": ["tapml.v1"], "max_size": 16 << 20, "compression": None, "origins": [None]}
    with serve(session, host, int(port), **settings) as server:
        print(f"serving at ws://{host}:{server.socket.getsockname()[1]}/numpy", flush=True)
        server.serve_forever()
