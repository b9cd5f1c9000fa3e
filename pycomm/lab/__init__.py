"""The rail lab: a small rail-optimised cluster on one Linux machine, for tests and benchmarks."""

from pycomm.lab.counters import Counters
from pycomm.lab.lab import Lab, LabHost, why_not
from pycomm.lab.layout import Layout

__all__ = ["Counters", "Lab", "LabHost", "Layout", "why_not"]
