"""Planted faults: an agent with ``--fault NAME`` computes one thing wrongly, as runtimes do. For measuring how well faults
are found; used by tests and benches only.

Every fault has a rule: what must hold for a call to show it. Calls outside the rule are left alone. Results keep the shape
that they should have, as in a runtime that plans its buffers from the declared types, unless the shape is the fault."""

from __future__ import annotations

from ._aten import ATEN
from ._attributes import ATTRIBUTES
from ._fault import Fault
from ._graphs import GRAPHS
from ._values import VALUES

__all__ = ["FAULTS", "Fault"]

#: Every fault by its name.
FAULTS = {fault.name: fault for fault in [*ATTRIBUTES, *VALUES, *GRAPHS, *ATEN]}
assert len(FAULTS) == len(ATTRIBUTES) + len(VALUES) + len(GRAPHS) + len(ATEN), "two faults have one name"
