"""File size, unique stems, an opening comment that states the file's job, and line length."""

from collections import defaultdict

from check_common import files, main, product_files, read

MAX_LINES = 500
MAX_COLUMNS = 120  # clang-format holds code to 100; it leaves comments and their tables alone
# The public header is one file so that it can be copied, and it is the manual.
ANY_SIZE = {"include/engine.h"}


def check(root):
    found = []
    for path in product_files(root):
        n_lines = read(root, path).count("\n")
        if n_lines > MAX_LINES and str(path) not in ANY_SIZE:
            found.append(f"{path}:{n_lines}: longer than {MAX_LINES} lines; split it by job")

    everything = sorted(set(product_files(root)) | set(files(root, "tests", "perf")))
    folders = defaultdict(set)
    for path in everything:
        text = read(root, path)
        if not text.lstrip("\ufeff").startswith(("//", "/*")):
            found.append(f"{path}:1: the first line must be a comment that states the file's job")
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > MAX_COLUMNS:
                found.append(f"{path}:{number}: {len(line)} columns, at most {MAX_COLUMNS}")
        # A program is named by its command, whatever the library calls its parts.
        if path.parts[:-1] != ("examples",):
            folders[path.name.split(".")[0].removesuffix("-inl")].add(str(path.parent))
    for stem, where in sorted(folders.items()):
        if len(where) > 1:
            found.append(f"{stem}: this stem is used in {', '.join(sorted(where))}; make it unique")

    for path in files(root, "tests", "cmake", "perf", "examples", suffixes={".py", ".sh", ".cmake"}):
        lines = read(root, path).split("\n")
        first = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
        if not first.startswith(("#", '"""')):
            found.append(f"{path}:1: the first line must be a comment that states the file's job")
    return found


LONG = "// job\n" + "int x;\n" * MAX_LINES
CASES = [
    ("a long file", {"lib/base/a.cc": LONG}, "longer than 500"),
    ("a long test", {"tests/unit/a.cc": LONG}, None),
    ("a file of 500 lines", {"lib/base/a.cc": LONG[: -len("int x;\n")]}, None),
    ("no comment", {"lib/base/a.cc": "int x;\n"}, "first line must be a comment"),
    ("no comment in a script", {"tests/a.py": "import os\n"}, "first line must be a comment"),
    ("a script", {"tests/a.sh": "#!/bin/sh\n# job\n", "tests/b.py": '"""Job."""\n'}, None),
    ("a stem twice", {"lib/base/a.cc": "//\n", "lib/file/a.h": "//\n"}, "a: this stem is used in lib/base, lib/file"),
    ("a pair", {"lib/base/a.cc": "//\n", "lib/base/a.h": "//\n", "lib/base/a-inl.h": "//\n"}, None),
    ("a program", {"examples/a.c": "//\n", "lib/base/a.h": "//\n"}, None),
    ("a wide line", {"lib/base/a.cc": "// " + "x" * 120 + "\n"}, "123 columns"),
]

if __name__ == "__main__":
    main(check, CASES, __doc__)
