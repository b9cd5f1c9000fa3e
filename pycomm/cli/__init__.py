"""The command line: `pycomm NAME …`. Each command is a module here with HELP, add_arguments and run."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from pycomm._version import __version__
from pycomm.errors import Error

COMMANDS = {
    "run": "start a program on n ranks of this machine",
    "info": "what this pycomm is, has and is set to",
    "plan": "print how a collective would be done, and why",
    "verify": "prove every algorithm",
    "bench": "measure a collective",
    "lab": "a small cluster with rails on this machine, as root",
    "tune": "measure what plans are priced with, and save it as a profile",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="pycomm", description="Collectives that stay on their rails.")
    parser.add_argument("--version", action="version", version=f"pycomm {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    named = next((word for word in arguments if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        if name != named:  # only the module that is asked for is imported
            commands.add_parser(name, help=summary, add_help=False)
            continue
        module = importlib.import_module(f"pycomm.cli.{name}")
        command = commands.add_parser(name, help=summary, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    parsed = parser.parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except Error as error:
        print(f"pycomm {named}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 141
