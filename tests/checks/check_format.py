"""Formatting of the C and C++ sources by clang-format 14 and .clang-format; --fix rewrites the files.

Other major versions format some constructs differently, so the check is skipped (exit status 77)
where clang-format 14 is not to be found.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from check_common import ROOT, files, product_files

SKIPPED = 77


def find_clang_format():
    for name in ("clang-format-14", "clang-format"):
        try:
            version = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
        except OSError:
            continue
        if re.search(r"version 14\.", version):
            return name
    return None


def check(tool, root, paths, *options):
    command = [tool, "--style=file", *(options or ("--dry-run", "-Werror"))]
    result = subprocess.run(command + [str(root / p) for p in paths], capture_output=True, text=True)
    wrong = re.findall(r"^(.*?:\d+):\d+: error: ", result.stderr, re.M)
    return sorted(set(wrong)) or ([result.stderr] if result.returncode else [])


def self_test(tool):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / ".clang-format").write_text((ROOT / ".clang-format").read_text())
        (root / "a.cc").write_text("int  f( ){return 1;}\n")
        (root / "b.cc").write_text("int f() { return 1; }\n")
        found = check(tool, root, ["a.cc"]), check(tool, root, ["b.cc"])
        check(tool, root, ["a.cc"], "-i")
        good = found[0] and not found[1] and (root / "a.cc").read_text() == (root / "b.cc").read_text()
    print("self-test passed" if good else f"self-test failed: {found}")
    return 0 if good else 1


def main():
    tool = find_clang_format()
    if not tool:
        print("skipped: no clang-format 14 here")
        sys.exit(SKIPPED)
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test(tool))
    paths = sorted(set(product_files(ROOT)) | set(files(ROOT, "tests", "perf")))
    found = check(tool, ROOT, paths, *(["-i"] if sys.argv[1:] == ["--fix"] else []))
    print("\n".join(found) if found else "no violation")
    if found:
        print("tests/checks/check_format.py --fix rewrites them")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
