"""Measures what `tapml check` finds of the planted faults of agents.

    python tools/fault_bench.py --tapml target/debug/tapml --out faults.tsv

The sample calls of the faults' tests become one ONNX model for each opset, which is carved on ONNX Runtime. A check of ONNX
Runtime as it is finds its own faults, if any. Each fault is then planted in an agent, and the suites with calls that show it are
checked: found is a fault whose operator fails, in another call or with another wrong number than without it, and no other
operator does. Faults between nodes show in calls of several nodes only: each of these is a model of its own, and found is a fault
that `tapml diagnose` tells between operators, with the planted one among them, and no other one.

`tapml diagnose` then says why. Its answer is right if it names the same: of a fault of an attribute, of the same one; of one of an
input, of the same one; of any other, one of the causes that say what the fault does (`CAUSES`, and `FUSION_CAUSES` between nodes).
Writes a table: fault, kind, operator, calls within its rule, found or why not, cause, rule, and whether they are right.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from typing import Any

import numpy as np
import onnx
import onnx.compose
from onnx import helper

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bindings/python/python"), str(ROOT / "bindings/python/tests")]

from agents_samples import samples  # noqa: E402
from tapml.agents.__main__ import ALL  # noqa: E402
from tapml.agents._onnx import make_model  # noqa: E402
from tapml.agents.faults import FAULTS, Fault  # noqa: E402
from tapml.agents.faults._attributes import ATTRIBUTES  # noqa: E402

#: Causes that say what a fault does, by its kind; where the name of an attribute or an input is to be told, that decides.
CAUSES = {
    "dtype": {"wrong_cast", "flushed_denormals"},
    "layout": {"wrong_stride", "transposed"},
    "nan": {"nan_ignored"},
    "overflow": {"overflow", "wrong_cast"},
    "padding": {"wrong_constant"},
    "rounding": {"rounding", "wrong_cast"},
    "stale": {"stale_data"},
    "stride": {"wrong_stride"},
    "tail": {"tail_dropped"},
    "axis": {"off_by_one"},
    "operand": {"input_ignored"},
}

#: Of faults between nodes: the cause that says what the fault does to a node.
FUSION_CAUSES = {
    "fused-conv-relu-dropped": "missing_term",
    "fused-conv-bias-twice": "wrong_scale",
    "fused-batchnormalization-epsilon": "wrong_attribute",
    "fused-batchnormalization-mean": "input_ignored",
    "fused-matmul-bias-dropped": "missing_term",
    "fused-clip-without-max": "input_ignored",
    "fused-pad-swapped": "swapped_operands",
    "fused-transpose-dropped": "missing_term",
    "fused-scale-dropped": "missing_term",
    "fused-silu-hard": "wrong_formula",
    "fused-gelu-tanh": "wrong_formula",
    "fused-residual-twice": "input_ignored",
    "fused-quantize-half-away": "rounding",
}

#: Of faults whose rule tells of an input in other words: its name.
INPUTS = {
    "reducesum-negative-axis": "axes",
    "gather-negative-index": "indices",
    "slice-steps-ignored": "steps",
    "pad-ends-swapped": "pads",
    "pow-exponent-truncated": "Y",
    "conv-bias-ignored": "B",
    "lstm-peepholes-ignored": "P",
    "dequantizelinear-zero-point-ignored": "x_zero_point",
}


def is_right(fault: Fault, found: dict) -> bool:
    """Whether a diagnosis says what a planted fault does."""
    rule = found.get("rule") or ""
    named = INPUTS.get(fault.name) or next(iter(re.findall(r"`(\w+)`", fault.rule)), None)
    if named and f"`{named}`" in rule:
        return True
    attribute = fault in ATTRIBUTES
    return not attribute and found["cause"] in CAUSES.get(fault.kind, set())


def write(folder: pathlib.Path, version: int, calls: list) -> None:
    """A model of these calls side by side, and its inputs."""
    graph = onnx.GraphProto(name="samples")
    (folder / f"v{version}").mkdir()
    for number, call in enumerate(calls):
        one = onnx.compose.add_prefix(make_model(call, ALL["ort"]().find_schema), f"c{number}_").graph
        for field in ("node", "input", "output", "initializer"):
            getattr(graph, field).extend(getattr(one, field))
        for name in call.given():
            np.save(folder / f"v{version}" / f"c{number}_{name}.npy", call.values[name].array)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8), folder / f"v{version}.onnx")


def write_graph(folder: pathlib.Path, number: int, call: Any) -> str:
    """The model of a call of several nodes, and its inputs."""
    name = f"g{number}"
    model = make_model(call, ALL["ort"]().find_schema)
    (folder / name).mkdir()
    for given in call.given():
        np.save(folder / name / f"{given}.npy", call.values[given].array)
    onnx.save(model, folder / f"{name}.onnx")
    return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tapml", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--fault", action="append", default=[], help="only this one; may be given several times")
    options = parser.parse_args()
    tapml = options.tapml.resolve()
    environment = {**os.environ, "TAPML_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "bindings/python/python")}

    def run(*arguments: str) -> dict:
        done = subprocess.run([tapml, *arguments, "--json", "-"], capture_output=True, env=environment, text=True, cwd=folder)
        if done.returncode == 2:
            raise SystemExit(f"{' '.join(arguments)}: {done.stderr}")
        return json.loads(done.stdout)

    def failures(report: dict) -> dict[str, list]:
        """Of each operator that fails: its failing calls, each with its worst element."""
        told = lambda f: json.dumps([f["case"], f["criterion"], f.get("element"), f.get("error")])  # noqa: E731
        return {op["op"]: sorted(map(told, op["failures"])) for op in report["ops"] if op["failed"]}

    def explained(fault: Fault, versions: list[int], known: dict) -> list[dict]:
        """What `tapml diagnose` says of the target's faults that are not ONNX Runtime's own."""
        found = []
        for version in versions:
            word = f"ort?fault={fault.name}"
            report = run("diagnose", f"v{version}.onnx", "--suite", f"s{version}", "--source", "ort", "--target", word)
            own = known[version]
            new = [f for f in report["faults"] if f["blames"] == "target" and f["failed"] > len(own.get(f["op"], []))]
            found += new
        return found

    chosen = [FAULTS[name] for name in options.fault] or list(FAULTS.values())
    groups = defaultdict(list)
    for call in samples():
        if not call.graph and call.nodes[0].domain == "onnx":
            groups[call.nodes[0].version].append(call)
    graphs = [call for call in samples() if call.graph]
    rows, counts, known = [], defaultdict(int), {}
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        for version, calls in sorted(groups.items()):
            write(folder, version, calls)
            run("carve", f"v{version}.onnx", "--inputs", f"v{version}", "--source", "ort", "--out", f"s{version}")
            report = run("check", f"s{version}", "--target", "ort")
            counts["calls"] += report["cases"]
            counts["clean, not checked"] += len(report["skipped"])
            for skipped in report["skipped"]:
                print(f"clean, opset {version}: {skipped}", file=sys.stderr)
            counts["clean, failed"] += report["failed"]
            # Faults of ONNX Runtime's own, which are no planted ones.
            known[version] = failures(report)
            for op, own in known[version].items():
                print(f"clean, opset {version}: {op}: {own[:2]}", file=sys.stderr)
        for number, call in enumerate(graphs):
            name = write_graph(folder, number, call)
            run("carve", f"{name}.onnx", "--inputs", name, "--source", "ort", "--out", f"{name}.suite")
            clean = run("diagnose", f"{name}.onnx", "--suite", f"{name}.suite", "--source", "ort", "--target", "ort")
            counts["graphs"] += 1
            counts["graphs, false"] += len(clean["faults"])
            for told in clean["faults"]:
                print(f"clean, {name}: {told['op']}: {told['evidence']}", file=sys.stderr)
        for fault in chosen:
            shown = {v: sum(bool(fault.matches(c)) for c in calls) for v, calls in groups.items()}
            if not any(shown.values()):
                counts["between nodes"] += 1
                told, others, cases = [], [], 0
                for number in (n for n, call in enumerate(graphs) if fault.matches(call)):
                    name, word = f"g{number}", f"ort?fault={fault.name}"
                    cases += 1
                    report = run("diagnose", f"{name}.onnx", "--suite", f"{name}.suite", "--source", "ort", "--target", word)
                    named = [f for f in report["faults"] if f["kind"] == "between" and f".{fault.operator}@" in f["op"]]
                    told += named
                    others += [f for f in report["faults"] if f not in named]
                verdict = "found" if told and not others else "missed" if not told else "others"
                counts[f"between nodes, {verdict}"] += 1
                words = sorted({f"{f['op']}: {f['cause']}: {f.get('rule') or '-'}" for f in told + others})
                right = bool(told) and all(f["cause"] == FUSION_CAUSES.get(fault.name) for f in told)
                counts["between nodes, cause right" if right else "between nodes, cause not right"] += 1
                rows.append((fault.name, fault.kind, fault.operator, str(cases), verdict, " | ".join(words), str(right)))
                print("\t".join(rows[-1]), file=sys.stderr)
                continue
            failed = set()
            for version in (v for v, count in shown.items() if count):
                report = run("check", f"s{version}", "--target", f"ort?fault={fault.name}")
                new = {op for op, own in failures(report).items() if own != known[version].get(op)}
                failed |= {op.split(".")[1].split("@")[0] for op in new}
            wanted = failed if fault.operator == "*" else {fault.operator}
            verdict = "found" if failed and failed == wanted else "missed" if not failed else f"others: {sorted(failed - wanted)}"
            counts[verdict.split(":")[0]] += 1
            told = explained(fault, [v for v, count in shown.items() if count], known)
            right = any(is_right(fault, found) for found in told)
            counts["rule right" if right else "rule not right"] += 1
            words = sorted({f"{found['cause']}: {found.get('rule') or '-'}" for found in told})
            rows.append((fault.name, fault.kind, fault.operator, str(sum(shown.values())), verdict, " | ".join(words), str(right)))
            if verdict != "found" or not right:
                print("\t".join(rows[-1]), file=sys.stderr)
    head = "\t".join(("fault", "kind", "operator", "calls", "verdict", "told", "right"))
    options.out.write_text(head + "\n" + "".join("\t".join(row) + "\n" for row in rows))
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
