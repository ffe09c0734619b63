"""Headers of released versions never change: each file tests/abi/frozen/engine_*.h has a line in SHA256SUMS there.

A release adds a file and a line (`sha256sum engine_X_Y_Z.h >> SHA256SUMS`); nothing is ever taken away.
"""

import hashlib
import sys
from pathlib import Path

from check_common import main

FOLDER = "tests/abi/frozen"
# Known here as well, so that a file and its line cannot go or change together unseen.
RELEASED = {"engine_0_1_0.h": "2e7bf3f58b34b02af7f875cf729e74069f8225d5972fc96b8d21009f88bdb2b0"}


def check(root, released=None):
    folder, found = root / FOLDER, []
    sums = folder / "SHA256SUMS"
    listed = dict(reversed(line.split()) for line in sums.read_text().splitlines()) if sums.exists() else {}
    there = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("engine_*.h"))}
    for name, digest in there.items():
        if name not in listed:
            found.append(f"{FOLDER}/{name}: not in SHA256SUMS")
        elif listed[name] != digest:
            found.append(f"{FOLDER}/{name}: a frozen header was changed")
    found += [f"{FOLDER}/SHA256SUMS: {name} is gone" for name in listed if name not in there]
    for name, digest in (RELEASED if released is None else released).items():
        if there.get(name) != digest:
            found.append(f"{FOLDER}/{name}: not the header that was released")
    return found


def _sum(text, name):
    return f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n"


A = f"{FOLDER}/engine_1_0_0.h"
SUMS = f"{FOLDER}/SHA256SUMS"
CASES = [
    ("as frozen", {A: "/* a */\n", SUMS: _sum("/* a */\n", "engine_1_0_0.h")}, None),
    ("edited", {A: "/* b */\n", SUMS: _sum("/* a */\n", "engine_1_0_0.h")}, "was changed"),
    ("not listed", {A: "/* a */\n", SUMS: ""}, "not in SHA256SUMS"),
    ("no list", {A: "/* a */\n"}, "not in SHA256SUMS"),
    ("gone", {SUMS: _sum("/* a */\n", "engine_1_0_0.h")}, "is gone"),
]

if __name__ == "__main__":
    # The cases are trees of their own: what this repository released is not in them.
    if "--self-test" in sys.argv:
        wrong = check(Path("/nonexistent"), RELEASED)
        main(lambda root: check(root, {}) if wrong else ["a missing release was not noticed"], CASES, __doc__)
    main(check, CASES, __doc__)
