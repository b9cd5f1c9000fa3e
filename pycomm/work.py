"""A collective under way."""

from __future__ import annotations

from typing import Any

from pycomm._C import Communicator, Operation
from pycomm.errors import TimedOut


class Work:
    """What an asynchronous call returns. Its buffers are in use until it is done."""

    def __init__(self, core: Communicator, operation: Operation, result: Any, what: str) -> None:
        self._core = core
        self._operation = operation
        self._result = result
        self._what = what

    def wait(self, timeout_s: float | None = None) -> Any:
        """Waits for the end and returns the result, as the blocking call would have.

        Args:
            timeout_s: How long to wait; by default as long as the call itself may take. A wait that
                ends early has not ended the call: wait again.

        Raises:
            TimedOut: not done yet, or the call's own deadline has passed.
            PeerLost, Mismatch: the call has failed.
        """
        if not self._core.wait(self._operation, timeout_s):
            raise TimedOut(f"{self._what}: not done after a wait of {timeout_s:g} s; it goes on, wait again")
        return self._result

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return bool(self._operation.done)
