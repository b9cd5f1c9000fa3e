"""The library's log: the logger `pycomm`, and the handler that PYCOMM_LOG asks for."""

from __future__ import annotations

import logging
import os
import socket

from pycomm.errors import InvalidArgument

TRACE = 5  # below logging.DEBUG: connections, handshakes, every planning
LEVELS = {"warn": logging.WARNING, "info": logging.INFO, "trace": TRACE}
FORMAT = "%(asctime)s pycomm[%(process)d] %(levelname)s %(message)s"

logger = logging.getLogger("pycomm")
logging.addLevelName(TRACE, "TRACE")


def configure(setting: str | None) -> None:
    """Applies PYCOMM_LOG, such as "info" or "trace:/tmp/pycomm.%h.%p.log"; None leaves logging to the
    program.

    Raises:
        InvalidArgument: the file cannot be written.
    """
    if setting is None:
        return
    level, _, path = setting.partition(":")
    if any(getattr(handler, "pycomm_log", None) == setting for handler in logger.handlers):
        logger.setLevel(LEVELS[level])
        return  # a second init of this process
    handler: logging.Handler = logging.StreamHandler()
    if path:
        name = path.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
        try:
            handler = logging.FileHandler(name)
        except OSError as why:
            raise InvalidArgument(f"PYCOMM_LOG={setting!r} cannot be used: {name}: {why.strerror}") from None
    handler.pycomm_log = setting  # type: ignore[attr-defined]
    logger.setLevel(LEVELS[level])
    handler.setFormatter(logging.Formatter(FORMAT))
    logger.addHandler(handler)
