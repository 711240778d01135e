"""Measures what `tapml check` finds of the planted faults of agents.

    python tools/fault_bench.py --tapml target/debug/tapml --out docs/results/data/faults.json
    python tools/fault_bench.py --runtime torch --tapml target/debug/tapml --out docs/results/data/aten_faults.json

The sample calls of the faults' tests become one ONNX model for each opset, which is carved on ONNX Runtime. With `--runtime torch`
the sample calls of PyTorch's operators become one suite, recorded in eager mode, and the faults are those of these operators.
A check of the runtime as it is finds its own faults, if any. Each fault is then planted in an agent, and the suites with calls
that show it are checked: found is a fault whose operator fails, in another call or with another wrong number than without it, and
no other operator does. Faults between nodes show in calls of several nodes only: each of these is a model of its own, and found is
a fault that `tapml diagnose` tells between operators, with the planted one among them, and no other one.

`tapml diagnose` then says why. Its answer is right if it names the same: of a fault of an attribute, of the same one; of one of an
input, of the same one; of any other, one of the causes that say what the fault does (`CAUSES`, and `FUSION_CAUSES` between nodes).
Writes a record of each: fault, kind, operator, calls within its rule, found or why not, cause and rule, and whether they are right.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.compose
from onnx import helper

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bindings/python/python"), str(ROOT / "bindings/python/tests")]

import agents_samples  # noqa: E402
import aten_samples  # noqa: E402
import records  # noqa: E402
from tapml.agents import Call, Executor  # noqa: E402
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

#: Of faults between nodes: the cause that says what the fault does to a node. A transposition that is left out is an operand that
#: is read transposed.
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
    "aten-fused-linear-relu-dropped": "missing_term",
    "aten-fused-convolution-relu-dropped": "missing_term",
    "aten-fused-linear-gelu-tanh": "wrong_attribute",
    "aten-fused-batch-norm-eps": "wrong_attribute",
    "aten-fused-linear-residual-twice": "input_ignored",
    "aten-fused-permute-dropped": "transposed",
    "aten-fused-sigmoid-mul-hard": "wrong_formula",
    "aten-fused-scale-softmax-dropped": "missing_term",
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


class Onnx:
    """Calls of operators of the standard, as models that ONNX Runtime carves."""

    runtime = "ort"

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.calls = agents_samples.samples()

    def faults(self) -> list[Fault]:
        """Those of these operators."""
        return [fault for fault in FAULTS.values() if "." not in fault.operator]

    def groups(self) -> dict[str, list[Call]]:
        """Calls of one node that may stand in one suite, by its name: those of one opset."""
        groups = defaultdict(list)
        for call in self.calls:
            if not call.graph and call.nodes[0].domain == "onnx":
                groups[f"v{call.nodes[0].version}"].append(call)
        return dict(sorted(groups.items()))

    def graphs(self) -> list[Call]:
        """Calls of several nodes."""
        return [call for call in self.calls if call.graph]

    def write(self, run: Any, name: str, calls: list[Call]) -> None:
        """The suite of these calls, side by side in one model."""
        graph = onnx.GraphProto(name="samples")
        opsets: dict[str, int] = {}
        (self.folder / name).mkdir()
        for number, call in enumerate(calls):
            model = make_model(call, ALL["ort"]().find_schema)
            opsets |= {used.domain: used.version for used in model.opset_import}
            one = onnx.compose.add_prefix(model, f"c{number}_").graph
            for field in ("node", "input", "output", "initializer"):
                getattr(graph, field).extend(getattr(one, field))
            for given in call.given():
                np.save(self.folder / name / f"c{number}_{given}.npy", call.values[given].array)
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), self.folder / f"{name}.onnx")
        run("carve", f"{name}.onnx", "--inputs", name, "--source", "ort", "--out", f"{name}.suite")

    def subject(self, name: str) -> list[str]:
        """What `tapml diagnose` is given."""
        return [f"{name}.onnx", "--suite", f"{name}.suite", "--source", "ort"]


class Aten:
    """Calls of PyTorch's operators, recorded in eager mode."""

    runtime = "torch"

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.executor = Executor(ALL["torch"]())

    def faults(self) -> list[Fault]:
        return [fault for fault in FAULTS.values() if "." in fault.operator]

    def groups(self) -> dict[str, list[Call]]:
        return {"samples": [*aten_samples.samples(), *aten_samples.beside_faults()]}

    def graphs(self) -> list[Call]:
        return aten_samples.graphs()

    def write(self, run: Any, name: str, calls: list[Call]) -> None:
        """The suite of these calls, side by side in one program; see `tapml.torch.export`."""
        from tapml._jobs import _run

        folder = self.folder / name
        folder.mkdir()
        program: dict[str, Any] = {"schema": 1, "name": name, "inputs": [], "weights": [], "nodes": [], "outputs": []}
        program["source"] = {"platform": "torch", "device": f"torch {self.executor.runtime.version}", "driver": "Python"}
        count = 0

        def keep(array: np.ndarray) -> int:
            nonlocal count
            np.save(folder / f"{count}.npy", array)
            count += 1
            return count - 1

        for number, call in enumerate(calls):
            numbers: dict[str, Any] = {"": None}
            for given, value in call.values.items():
                numbers[given] = keep(value.array)
                entry = {"name": f"c{number}_{given}", "value": numbers[given]}
                program["weights" if value.constant else "inputs"].append(entry)
            # What nodes hand on is recorded as well.
            made = tuple((name, None) for node in call.nodes for name in node.outputs)
            for (result, _), array in zip(made, self.executor.run(replace(call, results=made))):
                numbers[result] = keep(array)
            for at, node in enumerate(call.nodes):
                inputs, outputs = ([numbers[name] for name in names] for names in (node.inputs, node.outputs))
                entry = {"name": f"c{number}_{at}", "op": str(node), "attributes": node.attributes, "inputs": inputs, "outputs": outputs}
                program["nodes"].append(entry)
            program["outputs"] += [{"name": f"c{number}_{result}", "value": numbers[result]} for result, _ in call.results]
        (folder / "program.json").write_text(json.dumps(program))
        _run("record", {"program": str(folder), "out": str(self.folder / f"{name}.suite")}, False)

    def subject(self, name: str) -> list[str]:
        return [f"{name}.suite", "--source", "torch"]


def name_of(kind: str) -> str:
    """An operator as faults name it: without domain and version."""
    return kind.split(".", 1)[1].split("@")[0]


class Bench:
    """The suites of one kind of calls, and what a check of the runtime as it is says of them."""

    def __init__(self, tapml: pathlib.Path, folder: pathlib.Path, kind: Any) -> None:
        self.tapml, self.folder, self.kind = tapml, folder, kind(folder)
        self.environment = {**os.environ, "TAPML_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "bindings/python/python")}
        self.counts: dict[str, int] = defaultdict(int)
        self.groups, self.graphs = self.kind.groups(), self.kind.graphs()
        self.known: dict[str, dict[str, list]] = {}

    def run(self, *arguments: str) -> dict:
        """The report of a command."""
        command = [self.tapml, *arguments, "--json", "-"]
        done = subprocess.run(command, capture_output=True, env=self.environment, text=True, cwd=self.folder)
        if done.returncode == 2:
            raise SystemExit(f"{' '.join(arguments)}: {done.stderr}")
        return json.loads(done.stdout)

    def check(self, name: str, target: str) -> dict:
        return self.run("check", f"{name}.suite", "--target", target, *self.oracle())

    def diagnose(self, name: str, target: str) -> dict:
        return self.run("diagnose", *self.kind.subject(name), "--target", target, *self.oracle())

    def oracle(self) -> list[str]:
        """Who evaluates what TapML does not."""
        return ["--oracle", "torch-f64"] if self.kind.runtime == "torch" else []

    def word(self, fault: Fault) -> str:
        """The agent with the fault."""
        return f"{self.kind.runtime}?fault={fault.name}"

    def prepare(self) -> None:
        """Writes all suites, and notes the runtime's own faults, which are no planted ones."""
        for name, calls in self.groups.items():
            self.kind.write(self.run, name, calls)
            report = self.check(name, self.kind.runtime)
            self.counts["calls"] += report["cases"]
            self.counts["clean, not checked"] += len(report["skipped"])
            for skipped in report["skipped"]:
                print(f"clean, {name}: {skipped}", file=sys.stderr)
            self.counts["clean, failed"] += report["failed"]
            self.known[name] = failures(report)
            for op, own in self.known[name].items():
                print(f"clean, {name}: {op}: {own[:2]}", file=sys.stderr)
        for number, call in enumerate(self.graphs):
            name = f"g{number}"
            self.kind.write(self.run, name, [call])
            clean = self.diagnose(name, self.kind.runtime)
            self.counts["graphs"] += 1
            self.counts["graphs, false"] += len(clean["faults"])
            for told in clean["faults"]:
                print(f"clean, {name}: {told['op']}: {told['evidence']}", file=sys.stderr)

    def try_between(self, fault: Fault) -> tuple[str, ...]:
        """The row of a fault between nodes."""
        self.counts["between nodes"] += 1
        told, others, cases = [], [], 0
        for number in (n for n, call in enumerate(self.graphs) if fault.matches(call)):
            cases += 1
            report = self.diagnose(f"g{number}", self.word(fault))
            named = [f for f in report["faults"] if f["kind"] == "between" and fault.operator in names_in(f["op"])]
            told += named
            others += [f for f in report["faults"] if f not in named]
        verdict = "found" if told and not others else "missed" if not told else "others"
        self.counts[f"between nodes, {verdict}"] += 1
        words = sorted({f"{f['op']}: {f['cause']}: {f.get('rule') or '-'}" for f in told + others})
        right = bool(told) and all(f["cause"] == FUSION_CAUSES.get(fault.name) for f in told)
        self.counts["between nodes, cause right" if right else "between nodes, cause not right"] += 1
        return fault.name, fault.kind, fault.operator, str(cases), verdict, " | ".join(words), str(right)

    def try_single(self, fault: Fault, shown: dict[str, int]) -> tuple[str, ...]:
        """The row of a fault of one node; so many calls of each suite are within its rule."""
        failed, told = set(), []
        for name in (name for name, count in shown.items() if count):
            report = self.check(name, self.word(fault))
            failed |= {name_of(op) for op, own in failures(report).items() if own != self.known[name].get(op)}
        wanted = failed if fault.operator == "*" else {fault.operator}
        verdict = "found" if failed and failed == wanted else "missed" if not failed else f"others: {sorted(failed - wanted)}"
        self.counts[verdict.split(":")[0]] += 1
        for name in (name for name, count in shown.items() if count):
            report, own = self.diagnose(name, self.word(fault)), self.known[name]
            told += [f for f in report["faults"] if f["blames"] == "target" and f["failed"] > len(own.get(f["op"], []))]
        right = any(is_right(fault, found) for found in told)
        self.counts["rule right" if right else "rule not right"] += 1
        words = sorted({f"{found['cause']}: {found.get('rule') or '-'}" for found in told})
        return fault.name, fault.kind, fault.operator, str(sum(shown.values())), verdict, " | ".join(words), str(right)

    def row(self, fault: Fault) -> tuple[str, ...]:
        """The row of a fault in the table."""
        shown = {name: sum(bool(fault.matches(call)) for call in calls) for name, calls in self.groups.items()}
        row = self.try_single(fault, shown) if any(shown.values()) else self.try_between(fault)
        if row[4] != "found" or row[6] != "True":
            print("\t".join(row), file=sys.stderr)
        return row


def names_in(region: str) -> set[str]:
    """The operators of a region, which is told as their kinds."""
    return {name_of(kind) for kind in re.findall(r"[\w]+(?:\.[\w]+)+(?:@\d+)?", region)}


def failures(report: dict) -> dict[str, list]:
    """Of each operator that fails: its failing calls, each with its worst element."""
    told = lambda f: json.dumps([f["case"], f["criterion"], f.get("element"), f.get("error")])  # noqa: E731
    return {op["op"]: sorted(map(told, op["failures"])) for op in report["ops"] if op["failed"]}


def make_record(row: tuple[str, ...]) -> records.Record:
    """The record of a fault's row, with the day. What is empty is left out."""
    fault, kind, operator, calls, verdict, told, right = row
    record = {"date": str(datetime.date.today()), "fault": fault, "kind": kind, "operator": operator, "calls": int(calls)}
    record |= {"verdict": verdict, "told": told, "right": right == "True"}
    return {name: value for name, value in record.items() if value != ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runtime", choices=("ort", "torch"), default="ort", help="the runtime whose agent has the faults")
    parser.add_argument("--tapml", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--fault", action="append", default=[], help="only this one; may be given several times")
    options = parser.parse_args()
    content, rows = records.read(options.out), []
    with tempfile.TemporaryDirectory() as made:
        bench = Bench(options.tapml.resolve(), pathlib.Path(made), Aten if options.runtime == "torch" else Onnx)
        bench.prepare()
        for fault in [FAULTS[name] for name in options.fault] or bench.kind.faults():
            rows.append(make_record(bench.row(fault)))
            # After each fault: a run that is stopped has told of those before.
            records.write(options.out, content, rows)
    print(json.dumps(bench.counts))


if __name__ == "__main__":
    main()
