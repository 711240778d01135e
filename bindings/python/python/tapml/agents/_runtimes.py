"""Runtimes that take ONNX models, a few lines each."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import tempfile
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from ._calls import DTYPES, FLOATS, NAMES, Call, Unsupported
from ._executor import Executable, cast
from ._onnx import OnnxRuntime, read_names

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
CPU = "CPUExecutionProvider"


def require(title: str, sort: str, name: str, there: Iterable[str]) -> None:
    """Ends an agent that is asked for what this machine or this build does not have."""
    if name not in there:
        raise LookupError(f"{title} has no {sort} `{name}` here; it has: {', '.join(there)}")


class Ort(OnnxRuntime):
    """ONNX Runtime with any of its execution providers. ``provider``: such as CUDAExecutionProvider; what it does not
    serve itself is refused, and does not fall back to the CPU. ``device``: its device_id."""

    name, package = "ort", "onnxruntime"
    operators = ("onnx.*", "com.microsoft.*", "ai.onnx.ml.*")
    load = """
import onnxruntime as ort
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
found = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feed)[0]
"""
    load_graph = load.replace("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.provider = self.options.get("provider", CPU)
        require("ONNX Runtime", "execution provider", self.provider, self.module.get_available_providers())

    def build(self, model: Any, call: Call) -> Executable:
        ort = self.module
        options = ort.SessionOptions()
        levels = ort.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_ENABLE_ALL if call.graph else levels.ORT_DISABLE_ALL
        options.log_severity_level = 4
        # The threads of a session that waits would take processors from the one that runs: there are hundreds of sessions.
        for pool in ("intra_op", "inter_op"):
            options.add_session_config_entry(f"session.{pool}.allow_spinning", "0")
        if self.provider != CPU:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        settings = {"device_id": self.options["device"]} if "device" in self.options and self.provider != CPU else {}
        session = ort.InferenceSession(model.SerializeToString(), options, providers=[(self.provider, settings)])
        names, outputs = [i.name for i in model.graph.input], [o.name for o in model.graph.output]

        def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
            feed = {name: to_ort(ort, array) for name, array in zip(names, arrays)}
            return [from_ort(value) for value in session.run_with_ort_values(outputs, feed)]

        return run

    @property
    def refusals(self) -> tuple[type[BaseException], ...]:  # type: ignore[override]
        from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotServed

        return (NotServed, *super().refusals)

    def find_schema(self, domain: str, name: str, version: int) -> Any:
        if domain != "com.microsoft" and (domain != "onnx" or name not in OWN_OF_STANDARD):
            return super().find_schema(domain, name, version)
        found = [s for s in own_schemas() if s.name == name and s.since_version <= version]
        found = [s for s in found if s.domain == ("" if domain == "onnx" else domain)]
        if not found:
            raise Unsupported(f"this version of ONNX Runtime has no operator {domain}.{name}@{version}")
        return max(found, key=lambda schema: schema.since_version)


#: Operators of ONNX Runtime that models have in the standard's domain, which does not define them.
OWN_OF_STANDARD = ("SimplifiedLayerNormalization",)


@functools.lru_cache(None)
def own_schemas() -> list[Any]:
    """Schemas of ONNX Runtime's own operators, which the onnx package does not have."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    schemas = get_all_operator_schema()
    return [s for s in schemas if s.domain == "com.microsoft" or not s.domain and s.name in OWN_OF_STANDARD]


def to_ort(ort: Any, array: np.ndarray) -> Any:
    """The array as ONNX Runtime has it; NumPy has no bf16 of its own."""
    if array.dtype == BFLOAT16:
        if not hasattr(ort.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
            raise NotImplementedError("this version of ONNX Runtime takes no bf16 from Python")
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), 16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def from_ort(value: Any) -> np.ndarray:
    """The array of a result."""
    if not value.is_tensor():
        raise NotImplementedError("a result is a sequence or an optional, which are no tensors")
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(data, BFLOAT16).reshape(value.shape())


class OpenVino(OnnxRuntime):
    """OpenVINO, in f32 wherever the model says f32. ``device``: CPU (the default), GPU, NPU, …"""

    name = package = install = "openvino"
    #: That of the ONNX library inside OpenVINO 2026.4. OpenVINO itself reads newer models as if they were older.
    opset = 27
    load = """
import openvino as ov
program = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
found = program(feed)[0]
"""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.core, self.device = self.module.Core(), self.options.get("device", "CPU")
        require("OpenVINO", "device", self.device, self.core.available_devices)

    def build(self, model: Any, call: Call) -> Executable:
        ov, loaded = self.module, self.core.read_model(model.SerializeToString())
        program = self.core.compile_model(loaded, self.device, {"INFERENCE_PRECISION_HINT": "f32"})
        request = program.create_infer_request()

        # Inputs keep their order, except that one which the program does not look at may be none of its own. Names alone do
        # not do: an input that is handed on bears the name of the result.
        ports, names = list(program.inputs), call.given()
        if len(ports) != len(names):
            ports = [next((port for port in ports if name in port.get_names()), None) for name in names]

        def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
            for port, array in zip(ports, arrays):
                if port is not None:
                    request.set_tensor(port, to_openvino(ov, array))
            request.infer()
            return [from_openvino(ov, request.get_output_tensor(i)) for i in range(len(call.results))]

        return run


def to_openvino(ov: Any, array: np.ndarray) -> Any:
    """A copy as OpenVINO has it."""
    kind = ov.Type.bf16 if array.dtype == BFLOAT16 else ov.Type(array.dtype)
    tensor = ov.Tensor(kind, ov.Shape(array.shape))
    if array.size:
        tensor.data.reshape(-1)[...] = array.reshape(-1).view(tensor.data.dtype)
    return tensor


def from_openvino(ov: Any, tensor: Any) -> np.ndarray:
    """A copy of a result."""
    array = np.array(tensor.data).reshape(tuple(tensor.shape))
    return array.view(BFLOAT16) if tensor.element_type == ov.Type.bf16 else array


class Tract(OnnxRuntime):
    """tract (Sonos). It wants axes and shapes as constants."""

    name = package = install = "tract"
    dtypes = tuple(dtype for dtype in DTYPES if dtype != "bf16")
    load = """
import tract
found = tract.onnx().load(model).into_model().into_runnable().run(list(feed.values()))[0].to_numpy()
"""

    @property
    def version(self) -> str:
        return str(self.module.version())

    def build(self, model: Any, call: Call) -> Executable:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "model.onnx"
            file.write_bytes(model.SerializeToString())
            loaded = self.module.onnx().load(file)
        for place, name in enumerate(call.given()):
            value = call.values[name]
            loaded.set_input_fact(place, ",".join([*map(str, value.array.shape), value.dtype]))
        program = loaded.into_model().into_runnable()
        return lambda arrays: [result.to_numpy() for result in program.run(arrays)]


class Tvm(OnnxRuntime):
    """Apache TVM's Relax. ``device``: a target such as llvm (the default), cuda or vulkan."""

    name, package, install = "tvm", "tvm", "apache-tvm"
    load = """
import onnx, tvm
from tvm.relax.frontend.onnx import from_onnx
program = tvm.compile(from_onnx(onnx.load(model), keep_params_in_input=False), target="llvm")
found = tvm.relax.VirtualMachine(program, tvm.cpu())["main"](*map(tvm.runtime.tensor, feed.values()))
found = (found[0] if isinstance(found, tvm.ir.Array) else found).numpy()
"""

    def build(self, model: Any, call: Call) -> Executable:
        tvm, target = self.module, self.options.get("device", "llvm")
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        module = from_onnx(model, keep_params_in_input=False)
        device = tvm.device("cpu" if target == "llvm" else target)
        machine = relax.VirtualMachine(tvm.compile(module, target=target), device)

        def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
            found = machine["main"](*[tvm.runtime.tensor(array, device) for array in arrays])
            found = [found] if len(call.results) == 1 and not isinstance(found, tvm.ir.Array) else found
            # What a Shape gives is no tensor.
            return [r.numpy() if hasattr(r, "numpy") else np.array(tuple(r), np.int64) for r in found]

        return run


class Iree(OnnxRuntime):
    """IREE, compiled ahead of time. ``device``: local-task (the default), vulkan or cuda."""

    name, package, install = "iree", "iree.compiler", "iree-base-compiler iree-base-runtime"
    load = """
import subprocess, iree.compiler.tools, iree.runtime
subprocess.run([sys.executable, "-m", "iree.compiler.tools.import_onnx", model, "-o", "model.mlir"], check=True)
code = iree.compiler.tools.compile_file("model.mlir", input_type="onnx", target_backends=["llvm-cpu"])
found = iree.runtime.load_vm_flatbuffer(code, driver="local-task")["reproducer"](*feed.values())
found = (found[0] if isinstance(found, (list, tuple)) else found).to_host()
"""
    backends = {"local-task": "llvm-cpu", "local-sync": "llvm-cpu", "vulkan": "vulkan-spirv", "cuda": "cuda"}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        require("IREE", "driver", self.options.get("device", "local-task"), self.backends)

    @property
    def version(self) -> str:
        from iree.compiler import version

        return str(version.VERSION)

    def build(self, model: Any, call: Call) -> Executable:
        import iree.runtime as runtime
        from iree.compiler import tools
        from iree.compiler.tools.import_onnx import __main__ as importer

        driver = self.options.get("device", "local-task")
        for output, (_, declared) in zip(model.graph.output, call.results):  # The importer asks for shapes.
            if declared:
                shape = output.type.tensor_type.shape
                del shape.dim[:]
                shape.SetInParent()
                for size in declared[1]:
                    shape.dim.add(dim_value=size)
        with tempfile.TemporaryDirectory() as folder:
            source, mlir = os.path.join(folder, "model.onnx"), os.path.join(folder, "model.mlir")
            pathlib.Path(source).write_bytes(model.SerializeToString())
            importer.main(importer.parse_arguments([source, "-o", mlir]))
            flags = ["--iree-input-demote-f64-to-f32=false"]
            flags += ["--iree-llvmcpu-target-cpu=host"] if self.backends[driver] == "llvm-cpu" else []
            code = tools.compile_file(mlir, input_type="onnx", target_backends=[self.backends[driver]], extra_args=flags)
        program = runtime.load_vm_flatbuffer(code, driver=driver)
        main = program[model.graph.name]

        def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
            found = main(*arrays)
            hosts = [r.to_host() for r in (found if isinstance(found, (list, tuple)) else [found])]
            return [set_sign(host, declared) for host, (_, declared) in zip(hosts, call.results)]

        return run


def set_sign(array: np.ndarray, declared: Any) -> np.ndarray:
    """IREE's integers have no signs: those of a declared unsigned dtype of the same width are read as such."""
    wanted = DTYPES[declared[0]] if declared else array.dtype
    return array.view(wanted) if wanted.kind == "u" and array.dtype == f"i{wanted.itemsize}" else array


class Reference(OnnxRuntime):
    """onnx's ReferenceEvaluator, in f64: floats are widened before it computes, and its results are rounded to the
    declared dtypes. What a node itself rounds (``Cast to=FLOAT``, a ``dtype``) is rounded before that."""

    name, package, install = "reference", "onnx", "onnx"
    operators = ("onnx.*", "ai.onnx.ml.*")
    accumulate = "f64"
    #: Inputs whose dtype, not only their value, says what is computed.
    typed = {("CastLike", 1), ("BitCast", 0)}

    def build(self, model: Any, call: Call) -> Executable:
        import onnx

        # Node by node: whatever a node rounds is widened again for the next one.
        programs = [(node, self._program(model, node)) for node in model.graph.node]
        constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

        def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
            values = {**constants, **dict(zip(call.given(), arrays))}
            for node, program in programs:
                typed = {name for at, name in enumerate(node.input) if (node.op_type, at) in self.typed}
                feed = {name: values[name] if name in typed else widen(values[name]) for name in read_names(node)}
                values.update(zip((name for name in node.output if name), program.run(None, feed)))
            return [values[name] for name, _ in call.results]

        return run

    def _program(self, model: Any, node: Any) -> Any:
        import onnx
        from onnx.reference import ReferenceEvaluator

        inputs = [onnx.ValueInfoProto(name=name) for name in read_names(node)]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        widened = onnx.NodeProto()
        widened.CopyFrom(node)
        widen_constants(widened)
        graph = onnx.GraphProto(name="node", node=[widened], input=inputs, output=outputs)
        return ReferenceEvaluator(onnx.ModelProto(ir_version=10, opset_import=model.opset_import, graph=graph))

    def finish(self, asked: Call, call: Call, results: list[np.ndarray]) -> list[np.ndarray]:
        floats = [value.array.dtype for value in asked.values.values() if value.dtype in FLOATS]
        return cast(results, call, floats[0] if floats else None)


def widen(array: Any) -> Any:
    """Floats in f64; anything else as it is."""
    is_float = isinstance(array, (np.ndarray, np.generic)) and NAMES.get(array.dtype) in FLOATS
    return np.asarray(array, np.float64) if is_float else array


def widen_constants(node: Any) -> None:
    """Gives the constants of the graphs within a node floats in f64, as all other values there are."""
    import onnx

    for inner in (inner for attribute in node.attribute for inner in attribute.g.node):
        widen_constants(inner)
        for value in inner.attribute if inner.op_type == "Constant" else ():
            array = np.array(value.f if value.name == "value_float" else value.floats, np.float64)
            if value.name == "value":
                array = widen(onnx.numpy_helper.to_array(value.t))
            elif value.name not in ("value_float", "value_floats"):
                continue
            value.CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(array)))


RUNTIMES = {runtime.name: runtime for runtime in (Ort, OpenVino, Iree, Tvm, Tract, Reference)}
