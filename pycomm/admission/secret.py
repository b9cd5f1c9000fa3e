"""The job's secret on disk: PYCOMM_SECRET_FILE, or on one host a file of this user and job."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import tempfile
from pathlib import Path

from pycomm.errors import InvalidArgument

SECRET_BYTES = 32
LEAST_BYTES = 16  # of a secret somebody wrote


def job_file(job: str) -> Path:
    """Where the secret of a job on this host lies while its ranks find each other."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if not folder or not os.access(folder, os.W_OK | os.X_OK):
        folder = tempfile.gettempdir()
    digest = hashlib.sha256(job.encode()).hexdigest()[:16]
    return Path(folder) / f"pycomm-{os.geteuid()}-{digest}.secret"


def create(path: Path) -> bytes:
    """Writes a new secret, readable by this user only. It appears whole; what a dead job left is replaced.

    Raises:
        InvalidArgument: the file cannot be written, for instance because another user has put one there.
    """
    secret = secrets.token_hex(SECRET_BYTES).encode()
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
        os.replace(fresh, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise InvalidArgument(
            f"the job's secret cannot be written to {path}: {error.strerror}; "
            f"remove what is there, or set PYCOMM_SECRET_FILE to a file of mode 0600"
        ) from None
    return secret


def read(path: Path, follow: bool = True) -> bytes:
    """Reads a secret. Raises FileNotFoundError, and InvalidArgument where others could have written or
    read it. `follow`: through a symbolic link, where nobody else can have put one.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InvalidArgument(f"the job's secret in {path} cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidArgument(f"the job's secret: {path} is not a regular file")
        if status.st_uid != os.geteuid():
            raise InvalidArgument(
                f"the job's secret in {path} belongs to user {status.st_uid}, not to you ({os.geteuid()})"
            )
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise InvalidArgument(f"the job's secret in {path} has mode {mode:04o}: run chmod 600 {path}")
        secret = os.read(descriptor, 4096).strip()
    finally:
        os.close(descriptor)
    if len(secret) < LEAST_BYTES:
        raise InvalidArgument(
            f"the job's secret in {path} has {len(secret)} bytes and needs {LEAST_BYTES}: "
            f"write one with: openssl rand -hex 32 > {path}"
        )
    return secret
