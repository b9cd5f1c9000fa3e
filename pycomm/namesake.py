"""The other package that is imported as `pycomm`, a library for PLCs: its distribution is `pycomm`, ours
`pycomm-rail`.
"""

from __future__ import annotations


def namesake() -> str:
    """What to say where the other one is installed too, else ""."""
    import importlib.metadata  # slow to load, and rarely needed

    try:
        version = importlib.metadata.version("pycomm")
    except importlib.metadata.PackageNotFoundError:
        return ""
    return (
        f"The distribution pycomm {version}, an unrelated library for PLCs, is installed as well. Both are "
        f"imported as pycomm, and each writes over the other's files: pip uninstall pycomm, then "
        f"pip install --force-reinstall pycomm-rail."
    )


def explain_missing_core(why: ImportError) -> str:
    """Why `import pycomm` cannot go on, and what to do."""
    found = namesake()
    remedy = (
        found or "In a checkout it is made by `make build`; else pip install --force-reinstall pycomm-rail."
    )
    return f"pycomm's core, pycomm._C, cannot be imported: {why}. {remedy}"
