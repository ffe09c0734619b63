"""What every check needs: the list of files, the report, and self-tests that plant violations.

A check is a function root -> list of "file:line: what is wrong". Run it with no argument over the
repository, or with --self-test: every case writes a small tree and states what must be reported in
it; a case that states None must pass.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CODE = {".h", ".cc", ".c", ".inc", ".cu", ".cuh", ".comp"}


def files(root, *folders, suffixes=CODE):
    """Paths relative to root of the sources below these folders, sorted."""
    found = []
    for folder in folders:
        found += [p for p in (root / folder).rglob("*") if p.is_file() and p.suffix in suffixes]
    return sorted(p.relative_to(root) for p in found if "__pycache__" not in p.parts)


def product_files(root):
    return files(root, "include", "lib", "backends", "shaders", "examples")


def read(root, path):
    return (root / path).read_text(encoding="utf-8")


_TOKENS = re.compile(
    r'//(?:\\\n|[^\n])*|/\*.*?\*/|R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.S,
)


def without_comments_and_strings(text):
    """The text with comments and literals blanked; line numbers stay."""
    return _TOKENS.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def without_comments(text):
    """The text with comments blanked; line numbers stay."""
    return _TOKENS.sub(
        lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0].startswith("/") else m[0], text
    )


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def run_cases(check, cases):
    """Each case is (name, {path: text}, expected part of a message or None)."""
    failures = 0
    for name, tree, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in tree.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            found = check(root)
        if expected is None:
            good = not found
        else:
            good = any(expected in message for message in found)
        if not good:
            failures += 1
            print(f"self-test {name}: expected {expected!r}, got {found}")
    print(f"{len(cases) - failures} of {len(cases)} self-tests passed")
    return 1 if failures else 0


def main(check, cases, about):
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--self-test", action="store_true", help="plant violations and find them")
    if parser.parse_args().self_test:
        sys.exit(run_cases(check, cases))
    found = check(ROOT)
    print("\n".join(found) if found else "no violation")
    sys.exit(1 if found else 0)
