"""Collective communication that knows the topology."""

from pycomm._version import __version__

__all__ = ["__version__"]
