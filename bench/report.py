"""Where the rows of a script go, below a header that says which command measured them, when and on what machine.

A report is `bench/results/<gpu>/<what>[-seed].json`, one line for each row. `bench/tables` makes the tables of the documents from it.
"""

import datetime
import functools
import json
import math
import pathlib
import re
import shlex
import subprocess
import sys

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
#: Options that name a place of this machine, and those that say how a report came about, not what was measured.
PLACES, COURSE = {"--kernels", "--out", "--binary", "--measurements", "--roofline", "--limit"}, {"--resume"}


def command():
    """The command line, without what another machine has elsewhere."""
    kept, words = [], iter(sys.argv[1:])
    for word in words:
        name, _, value = word.partition("=")
        if name in PLACES:
            if not value:
                next(words, None)
        elif name not in COURSE:
            kept.append(word)
    return shlex.join(["python3", f"bench/{pathlib.Path(sys.argv[0]).name}", *kept])


@functools.cache
def driver():
    """The version of the NVIDIA driver; None where `nvidia-smi` does not say."""
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
        return subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def folder(machine):
    """The folder of a GPU: `NVIDIA H100 80GB HBM3` is `h100`."""
    found = re.search(r"[A-Z]*\d+[A-Z]*", machine["gpu"])
    return (found.group() if found else machine["gpu"].replace(" ", "-")).lower()


def place(options, machine, what, seed=None):
    """Sets where the report goes, unless --out has said it."""
    if not options.out:
        options.out = RESULTS / folder(machine) / f"{what}{'' if seed is None else f'-{seed}'}.json"
    options.out.parent.mkdir(parents=True, exist_ok=True)


def known(value):
    """The value as JSON has it, which knows no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: known(of) for key, of in value.items()}
    return [known(of) for of in value] if isinstance(value, list) else value


def write(out, machine, rows, **more):
    """Writes the report; `more` goes to the header."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    machine = {key: value for key, value in {**machine, "driver": driver()}.items() if value}
    header = known({"command": command(), "machine": machine, "when": now, **more})
    lines = ",\n".join(f"  {json.dumps(known(row))}" for row in rows)
    out.write_text(f'{json.dumps(header, indent=1)[:-2]},\n "rows": [\n{lines}\n ]\n}}\n')
