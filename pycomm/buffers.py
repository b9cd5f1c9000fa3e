"""The caller's buffers: what can be sent, and what a result may be written to. Everything else is
refused by name.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pycomm.errors import InvalidArgument, Unsupported

Array: TypeAlias = NDArray[Any]

DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)


def as_array(buffer: object, dtype: object, what: str) -> Array:
    """`buffer` as an array on the same memory; `dtype` says what the bytes of a raw buffer are.

    Raises:
        InvalidArgument: it has no buffer protocol, it is masked, or its size is no multiple of an element.
    """
    if isinstance(buffer, np.ma.MaskedArray):
        raise InvalidArgument(
            f"{what}: a masked array's mask would be lost: pass x.filled(value), or x.data and x.mask apart"
        )
    if isinstance(buffer, np.ndarray) and dtype is None:
        return buffer
    try:
        array = buffer if isinstance(buffer, np.ndarray) else np.asarray(memoryview(buffer))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError) as why:
        raise InvalidArgument(
            f"{what}: {type(buffer).__name__} has no buffer that can be used ({why}); pass a NumPy array "
            f"or an object "
            f"with the buffer protocol, such as numpy.asarray(x)"
        ) from None
    if dtype is None:
        return array
    wanted = named_dtype(dtype, what)
    if not array.flags.c_contiguous or array.nbytes % wanted.itemsize:
        raise InvalidArgument(
            f"{what}: a buffer of {array.nbytes} bytes cannot be taken as {wanted} of {wanted.itemsize} "
            f"bytes each"
        )
    return array.reshape(-1).view(np.uint8).view(wanted)


def named_dtype(dtype: object, what: str) -> np.dtype[Any]:
    """A NumPy dtype from its name; "bfloat16" needs the package ml_dtypes. Raises InvalidArgument."""
    if dtype == "bfloat16":
        try:
            import ml_dtypes
        except ModuleNotFoundError:
            raise InvalidArgument(f"{what}: NumPy knows bfloat16 only with the package ml_dtypes") from None
        brain: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return brain
    try:
        found: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        raise InvalidArgument(f"{what}: {dtype!r} is no dtype: use one of {', '.join(DTYPES)}") from None
    return found


def dtype_name(dtype: np.dtype[Any], what: str) -> str:
    """The dtype's name in the core. Raises Unsupported, with what can be sent."""
    if not dtype.isnative:
        raise Unsupported(
            f"{what}: {dtype} is in the other byte order: convert with x.astype(x.dtype.newbyteorder('='))"
        )
    if dtype.name not in DTYPES:
        raise Unsupported(
            f"{what}: dtype {dtype} is not one of {', '.join(DTYPES)}; convert, or x.view() its bytes"
        )
    return str(dtype.name)


def check_result(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> None:
    """Raises InvalidArgument unless a result of that shape (or its elements in one row) can be written
    to `array`.
    """
    if array.dtype != dtype:
        raise InvalidArgument(f"{what}: out has dtype {array.dtype}, the result {dtype}")
    if array.shape not in (shape, (prod(shape),)):
        raise InvalidArgument(f"{what}: out has shape {array.shape}, the result {shape}")
    if not array.flags.writeable:
        raise InvalidArgument(f"{what}: out is read-only: pass an array of your own, or leave out= away")
    if not array.flags.c_contiguous:
        raise InvalidArgument(
            f"{what}: out is strided, which cannot be written in place: pass a contiguous array and copy "
            f"from it"
        )


def offset_of(inner: Array, outer: Array) -> int | None:
    """Bytes from the start of `outer` to that of `inner` if they share memory, else None. Both are
    contiguous.
    """
    if inner.nbytes == 0 or outer.nbytes == 0:
        return None
    distance = int(inner.__array_interface__["data"][0]) - int(outer.__array_interface__["data"][0])
    return distance if -inner.nbytes < distance < outer.nbytes else None
