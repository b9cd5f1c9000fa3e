"""A moment until which something may take."""

from __future__ import annotations

import time


class Deadline:
    """`timeout_s` from now. Everything that waits for others takes one."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._at = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Seconds left; 0 when it has passed."""
        return max(0.0, self._at - time.monotonic())

    def passed(self) -> bool:
        """True when no time is left."""
        return time.monotonic() >= self._at

    def within(self, timeout_s: float) -> Deadline:
        """The earlier of this deadline and `timeout_s` from now."""
        return Deadline(min(self.left_s(), timeout_s))

    def text(self) -> str:
        """Such as "30 s" or "0.5 s"."""
        return f"{self.timeout_s:g} s"
