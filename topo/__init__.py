"""Topology, planning and proofs: what pycomm thinks with."""

from pycomm.topo.plan import Plan
from pycomm.topo.planner import POLICIES, CrossesRails, Planner
from pycomm.topo.profile import Limits, Profile, Wire
from pycomm.topo.topology import Place, Topology

__all__ = ["POLICIES", "CrossesRails", "Limits", "Place", "Plan", "Planner", "Profile", "Topology", "Wire"]
