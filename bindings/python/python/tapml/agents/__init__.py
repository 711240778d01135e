"""Agents that let TapML run operators on other people's runtimes: ONNX Runtime, OpenVINO, tract, TVM, IREE, PyTorch, ….

    python -m tapml.agents ort --listen 127.0.0.1:7071

A runtime of one's own is a class with one method (``docs/guide/other-runtimes.md``):

    from tapml.agents import OnnxRuntime, serve

    class Mine(OnnxRuntime):
        name, package, dtypes = "mine", "mylib", ("f32", "i64", "bool")

        def build(self, model, call):
            program = mylib.compile(model.SerializeToString())
            return lambda arrays: program.run(*arrays)

    serve(Mine())

Nothing here needs the extension module of the package.
"""

from __future__ import annotations

from ._aten import AtenRuntime
from ._calls import Call, Node, Unsupported, Value
from ._command import serve
from ._executor import Executor, Runtime
from ._onnx import OnnxRuntime

__all__ = ["AtenRuntime", "Call", "Executor", "Node", "OnnxRuntime", "Runtime", "Unsupported", "Value", "serve"]
