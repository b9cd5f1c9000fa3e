"""The library's log: the logger `pycomm`, and the handler that PYCOMM_LOG asks for."""

from __future__ import annotations

import logging
import os
import socket

TRACE = 5  # below logging.DEBUG: connections, handshakes, every planning
LEVELS = {"warn": logging.WARNING, "info": logging.INFO, "trace": TRACE}
FORMAT = "%(asctime)s pycomm[%(process)d] %(levelname)s %(message)s"

logger = logging.getLogger("pycomm")
logging.addLevelName(TRACE, "TRACE")


def configure(setting: str | None) -> None:
    """Applies PYCOMM_LOG, such as "info" or "trace:/tmp/pycomm.%h.%p.log"; None leaves logging to the
    program.
    """
    if setting is None:
        return
    level, _, path = setting.partition(":")
    logger.setLevel(LEVELS[level])
    if any(getattr(handler, "pycomm_log", None) == setting for handler in logger.handlers):
        return  # a second init of this process
    handler: logging.Handler = logging.StreamHandler()
    if path:
        name = path.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
        handler = logging.FileHandler(name, delay=True)
    handler.pycomm_log = setting  # type: ignore[attr-defined]
    handler.setFormatter(logging.Formatter(FORMAT))
    logger.addHandler(handler)
