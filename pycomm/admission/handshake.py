"""Who may join: three messages that prove to both sides that the other knows the job's secret.

    dialer   -> accepter   hello  {job, purpose, rank, to, note, nonce}
    accepter -> dialer     reply  {nonce, proof = HMAC(secret, "accepter" | hello | nonce)}
    dialer   -> accepter   proof  HMAC(secret, "dialer" | hello | reply)

Both nonces are in both proofs, so nothing can be replayed; the roles are, so nothing can be reflected;
the whole hello is, so nobody can change who is said to call whom. The messages are JSON; no input or output
happens here.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass

PROTOCOL = 1
NONCE_BYTES = 32
MESSAGE_LIMIT = 1024  # bytes of any of the three messages


class Refused(ConnectionError):
    """The other side is not who it should be."""


@dataclass(frozen=True)
class Identity:
    """What a rank of a job shows at the door. `job` is no secret, `secret` is never sent."""

    job: str
    rank: int
    size: int
    secret: bytes

    def __repr__(self) -> str:
        return f"Identity(job={self.job!r}, rank={self.rank}, size={self.size})"


@dataclass(frozen=True)
class Visitor:
    """Who came, once its proof is checked."""

    rank: int
    size: int
    purpose: str
    note: str = ""


class Dialer:
    """The side that opens the connection. `note` is for whoever admits it, who can trust it like the rest."""

    def __init__(self, identity: Identity, purpose: str, to: int, note: str = "") -> None:
        self._secret = identity.secret
        fields = {
            "pycomm": PROTOCOL,
            "job": identity.job,
            "purpose": purpose,
            "rank": identity.rank,
            "size": identity.size,
            "to": to,
            "note": note,
            "nonce": secrets.token_hex(NONCE_BYTES),
        }
        self.hello = json.dumps(fields).encode()

    def answer(self, reply: bytes) -> bytes:
        """Checks the accepter's proof and returns ours. Raises Refused."""
        fields = _fields(reply)
        nonce, proof = fields.get("nonce"), fields.get("proof")
        if not isinstance(nonce, str) or not isinstance(proof, str) or len(nonce) != 2 * NONCE_BYTES:
            raise Refused("the other side does not speak pycomm's handshake")
        if not _same(proof, _proof(self._secret, "accepter", self.hello, nonce.encode())):
            raise Refused("the other side does not know this job's secret")
        return _proof(self._secret, "dialer", self.hello, reply).encode()


class Accepter:
    """The side that is called."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._hello = b""
        self._reply = b""
        self._visitor: Visitor | None = None

    def reply(self, hello: bytes) -> bytes:
        """Answers a hello. Raises Refused where it is malformed, of another job or for another rank."""
        fields = _fields(hello)
        rank, size, purpose, note, nonce = map(fields.get, ("rank", "size", "purpose", "note", "nonce"))
        if fields.get("pycomm") != PROTOCOL or fields.get("job") != self._identity.job:
            raise Refused("a caller of another job")
        if fields.get("to") != self._identity.rank:
            raise Refused(f"a caller for rank {fields.get('to')!r}")
        if not (_is_rank(rank) and _is_rank(size) and isinstance(purpose, str) and isinstance(note, str)):
            raise Refused("a malformed hello")
        if not isinstance(nonce, str) or len(nonce) != 2 * NONCE_BYTES:
            raise Refused("a malformed hello")
        assert isinstance(rank, int)
        assert isinstance(size, int)
        self._visitor = Visitor(rank, size, purpose, note)
        self._hello = hello
        mine = secrets.token_hex(NONCE_BYTES)
        proof = _proof(self._identity.secret, "accepter", hello, mine.encode())
        self._reply = json.dumps({"nonce": mine, "proof": proof}).encode()
        return self._reply

    def admit(self, proof: bytes) -> Visitor:
        """Checks the dialer's proof. Raises Refused."""
        expected = _proof(self._identity.secret, "dialer", self._hello, self._reply)
        if self._visitor is None or not hmac.compare_digest(proof, expected.encode()):
            raise Refused("a caller that does not know this job's secret")
        return self._visitor


def derive(secret: bytes, label: str) -> bytes:
    """A secret of its own for one use of the job's."""
    return hmac.digest(secret, b"pycomm derive\0" + label.encode(), "sha256")


def _proof(secret: bytes, role: str, first: bytes, second: bytes) -> str:
    digests = hashlib.sha256(first).digest() + hashlib.sha256(second).digest()
    return hmac.new(secret, f"pycomm {PROTOCOL} {role}\0".encode() + digests, "sha256").hexdigest()


def _same(theirs: str, expected: str) -> bool:
    return hmac.compare_digest(theirs.encode(), expected.encode())


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _fields(message: bytes) -> dict[str, object]:
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError):
        raise Refused("a message that is not JSON") from None
    if not isinstance(fields, dict):
        raise Refused("a message that is not an object")
    return fields
