"""How the ranks of a job first find each other."""

from pycomm.bootstrap.bootstrap import Alone, Bootstrap

__all__ = ["Alone", "Bootstrap"]
