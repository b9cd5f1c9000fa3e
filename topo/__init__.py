"""Topology, planning and proofs: what pycomm thinks with."""

from pycomm.topo.plan import Plan
from pycomm.topo.planner import CrossesRails, Planner, Policy
from pycomm.topo.profile import Limits, Profile, Wire
from pycomm.topo.topology import Place, Topology

__all__ = ["CrossesRails", "Limits", "Place", "Plan", "Planner", "Policy", "Profile", "Topology", "Wire"]
