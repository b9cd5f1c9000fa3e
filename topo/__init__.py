"""Topology, planning and proofs: what pycomm thinks with."""
