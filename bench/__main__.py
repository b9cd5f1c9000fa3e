"""python -m bench COMMAND …: the measurements, by name."""

import sys
from importlib import import_module

COMMANDS = {
    "main": "what `make bench` shows: a plan and its proof, a table, byte counters, a comparison with gloo",
    "compare": "a collective of pycomm and of its peers, interleaved",
    "fabric": "a collective of pycomm and of its peers over an emulated rail-optimised network",
    "instructions": "instructions of a call of eight bytes, against a baseline",
    "leak": "what many small all-reduces leave behind",
    "init": "how long it takes until the ranks of one machine can talk",
}


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        asked = name in ("-h", "--help")
        lines = [f"  {command:<13} {what}" for command, what in COMMANDS.items()]
        text = "\n".join(["usage: python -m bench COMMAND [options]", *lines])
        print(text, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    return int(import_module(f"bench.{name}").main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
