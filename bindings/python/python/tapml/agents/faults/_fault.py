"""What a fault is: a rule that says which calls show it, and a change of the call or of its results."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional

import numpy as np

from .._calls import Call, Node, Value

Run = Callable[[Call], list[np.ndarray]]


@dataclass(frozen=True)
class View:
    """A node of a call, with what is known of its inputs."""

    node: Node
    call: Call

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute as plain JSON."""
        return self.node.attributes.get(name, default)

    def array(self, place: int) -> Any:
        """The array of an input; None where it is absent, or made by another node of the call."""
        name = self.node.inputs[place] if place < len(self.node.inputs) else ""
        return self.call.values[name].array if name in self.call.values else None

    def maker(self, place: int) -> Optional[Node]:
        """The node of the call that makes an input."""
        name = self.node.inputs[place] if place < len(self.node.inputs) else ""
        return next((node for node in self.call.nodes if name and name in node.outputs), None)


#: Says whether a node shows the fault, and what becomes of it: a node, or a node and new arrays of its inputs by place.
Shows = Callable[[View], bool]
Change = Callable[[View], Any]


@dataclass(frozen=True)
class Fault:
    """One fault. ``change`` is of a call's nodes and inputs; ``results`` makes the results itself, from the call, the true
    results and what the fault remembers of earlier calls."""

    name: str
    operator: str
    kind: str
    rule: str
    shows: Shows
    change: Optional[Change] = None
    results: Optional[Callable[[View, list[np.ndarray], dict[str, Any]], list[np.ndarray]]] = None
    #: The shape itself is wrong.
    reshapes: bool = False
    #: It is between nodes, and shows only where several are run as one model.
    graph: bool = False
    memory: dict[str, Any] = field(default_factory=dict, compare=False)

    def describe(self) -> dict[str, str]:
        """What ``--list-faults`` prints."""
        return {"name": self.name, "operator": self.operator, "kind": self.kind, "rule": self.rule}

    def matches(self, call: Call) -> list[View]:
        """The nodes of a call that show the fault."""
        if self.graph and not call.graph:
            return []
        views = [View(node, call) for node in call.nodes if self.operator in ("*", node.name)]
        return [view for view in views if self.shows(view)]

    def run(self, call: Call, run: Run) -> list[np.ndarray]:
        """The results of a call as the faulty runtime gives them."""
        true, matches = run(call), self.matches(call)
        if not matches:
            return true
        if self.results:  # These know the results of the whole call, so that they are for single nodes.
            return true if call.graph else self.results(matches[0], true, self.memory)
        wrong = run(change_call(call, matches, self.change))
        return wrong if self.reshapes else [fit(w, t.shape) for w, t in zip(wrong, true)]


def change_call(call: Call, matches: list[View], change: Optional[Change]) -> Call:
    """The call with every node that shows the fault changed."""
    nodes, values = list(call.nodes), dict(call.values)
    for view in matches:
        assert change
        made = change(view)
        node, arrays = made if isinstance(made, tuple) else (made, {})
        inputs = list(node.inputs)
        for place, array in arrays.items():
            inputs += [""] * (place + 1 - len(inputs))
            # A value that other nodes use as well keeps its name for them.
            old, name = inputs[place], f"f{len(values)}"
            inputs[place] = name
            values[name] = Value(np.array(array, order="C"), old in values and values[old].constant)
        nodes[call.nodes.index(view.node)] = replace(node, inputs=tuple(inputs))
    used = {name for node in nodes for name in node.inputs}
    return replace(call, nodes=tuple(nodes), values={k: v for k, v in values.items() if k in used})


def fit(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array cropped, or filled up with zeros, to a shape."""
    if array.shape == shape:
        return array
    made = np.zeros(shape, array.dtype)
    if array.ndim == len(shape):
        common = tuple(slice(0, min(a, b)) for a, b in zip(array.shape, shape))
        made[common] = array[common]
    else:
        made.reshape(-1)[: min(made.size, array.size)] = array.reshape(-1)[: made.size]
    return made
