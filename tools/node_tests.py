#!/usr/bin/env python3
"""Runs ONNX's own node tests on a runtime of `python -m tapml.agents`, and counts: served and right within the test's own
rtol and atol, wrong, not served (before it ran), failed (while it ran), and crashed.

pip install onnx numpy websockets protobuf onnxruntime
PYTHONPATH=bindings/python/python python tools/node_tests.py ort --out ort.jsonl

Every test goes through the agent's messages and its class, in a process that is started anew when it crashes. With
`--constants` the inputs behind the first are constants, as weights and axes are in models."""

import argparse, collections, json, multiprocessing, pathlib, re, sys, time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bindings/python/python"), str(ROOT / "bindings/python/tests")]
from agents_client import encode_node  # noqa: E402

from tapml.agents import Executor, Unsupported, Value  # noqa: E402
from tapml.agents.__main__ import ALL  # noqa: E402
from tapml.agents._calls import NAMES, parse_graph, parse_node  # noqa: E402

# What models in practice do not have, or what has no one right result.
APART = re.compile("bfloat16|bf16|float8|float4|FLOAT8|FLOAT4|int4|INT4|int2|INT2|E8M0|string|sequence|optional|bernoulli|random"
                   "|dropout_.*training|training_dropout|adam|adagrad|momentum|_expanded|ai_onnx_ml|gradient|flex")


def collect():
    from onnx.backend.test.case.node import collect_testcases

    return {case.name: case for case in collect_testcases(None)}


def to_array(value):
    import onnx

    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    value = np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else value
    if not isinstance(value, np.ndarray) or value.dtype not in NAMES:
        raise KeyError(f"a {type(value).__name__} {getattr(value, 'dtype', '')} cannot be sent")
    return value


def make_call(pb, case, data, constants):
    """The messages of a test, parsed as an agent does."""
    graph = case.model.graph
    opsets = {o.domain: o.version for o in case.model.opset_import}
    if graph.initializer:
        raise KeyError("a model with initialisers")
    names = [i.name for i in graph.input]
    given = dict(zip(names, (to_array(value) for value in data[0])))
    flags = {name: constants and at > 0 for at, name in enumerate(names)}
    declared = [to_array(value) for value in data[1]]
    types = [pb.Tensor(dtype=NAMES[a.dtype], shape=a.shape) for a in declared]
    outputs = [o.name for o in graph.output]
    nodes = [encode_node(node, opsets) for node in graph.node]
    if len(nodes) == 1:
        node, (op, attributes) = graph.node[0], nodes[0]
        values = [Value(given[n], flags[n]) if n else None for n in node.input]
        kinds = [dict(zip(outputs, types)).get(n, pb.Tensor(absent=True)) for n in node.output]
        request = pb.CallNode(op=op, attributes=json.dumps(attributes), outputs=kinds)
        order = [n for n in node.output if n in outputs]
        return parse_node(request, values), [declared[outputs.index(n)] for n in order]
    made = [
        pb.GraphNode(op=op, attributes=json.dumps(a), inputs=node.input, outputs=node.output)
        for node, (op, a) in zip(graph.node, nodes)
    ]
    request = pb.CallGraph(nodes=made, inputs=names, outputs=outputs, types=types)
    return parse_graph(request, [Value(given[n], flags[n]) for n in names]), declared


def judge(case, found, expected):
    for one, other in zip(found, expected):
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{one.dtype}{list(one.shape)} instead of {other.dtype}{list(other.shape)}"
        wide = [a.astype(np.float64) if a.dtype.kind in "fV" else a for a in (one, other)]
        if not np.allclose(*wide, rtol=case.rtol, atol=case.atol, equal_nan=True):
            return f"worst difference {np.max(np.abs(wide[0].astype(float) - wide[1].astype(float)), initial=0):.3g}"
    return ""


def run_case(pb, executor, case, constants):
    for data in case.data_sets:
        try:
            call, expected = make_call(pb, case, data, constants)
        except (KeyError, Unsupported) as error:
            return "not sent", str(error)
        try:
            found = executor.run(call)
        except Unsupported as error:
            return "not served", str(error)
        except Exception as error:
            return "failed", str(error)
        if text := judge(case, found, expected):
            return "wrong", text
    return "right", ""


def work(pipe, name, options, constants):
    from tapml.agents.gen import tapml_pb2 as pb

    np.seterr(all="ignore")
    cases, executor = collect(), Executor(ALL[name](**options), entries=8)
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        pipe.send(run_case(pb, executor, cases[asked], constants))


def start(options):
    here, there = multiprocessing.Pipe()
    words = {"provider": options.provider, "device": options.device}
    process = multiprocessing.Process(target=work, args=(there, options.runtime, words, options.constants), daemon=True)
    process.start()
    there.close()
    here.recv()
    return process, here


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runtime", choices=list(ALL))
    parser.add_argument("--provider")
    parser.add_argument("--device")
    parser.add_argument("--constants", action="store_true", help="inputs behind the first are constants")
    parser.add_argument("--core", action="store_true", help="the core tests only")
    parser.add_argument("--seconds", type=float, default=60, help="the most that one test may take")
    parser.add_argument("--out", help="a file for one line of JSON for each test")
    options = parser.parse_args()
    np.seterr(all="ignore")
    multiprocessing.set_start_method("spawn")
    runtime = ALL[options.runtime](provider=options.provider, device=options.device)
    process, pipe = start(options)
    counts, begin = {"all": collections.Counter(), "core": collections.Counter()}, time.time()
    with open(options.out or "/dev/null", "w") as file:
        for name in collect():
            core = not APART.search(name)
            if options.core and not core:
                continue
            try:
                pipe.send(name)
                if not pipe.poll(options.seconds):
                    raise TimeoutError
                result, text = pipe.recv()
            except (EOFError, ConnectionError, TimeoutError) as error:
                process.kill()
                process.join()
                result, text = "crashed", f"{type(error).__name__}, exit code {process.exitcode}"
                process, pipe = start(options)
            for kind in ["all"] + ["core"] * core:
                counts[kind][result] += 1
            file.write(json.dumps({"test": name, "core": core, "result": result, "text": text}) + "\n")
    pipe.send(None)
    import onnx

    print(f"{runtime.title}, onnx {onnx.__version__}, {time.time() - begin:.0f} s")
    for kind, count in counts.items():
        print(f"{kind} {sum(count.values())}: " + ", ".join(f"{n} {result}" for result, n in count.most_common()))


if __name__ == "__main__":
    main()
