"""Who may include whom: the table of the architecture, and includes written from the root."""

import re

from check_common import files, line_of, main, read, without_comments

# Folder of lib/ -> folders of lib/ that it may include besides itself.
LIB = {
    "base": set(),
    "file": {"base"},
    "quant": {"base"},
    "sample": {"base"},
    "text": {"base", "file"},
    "model": {"base", "file", "quant", "text"},
    "contract": {"base", "quant"},
    "plan": {"base", "quant", "model", "contract"},
    "session": {"base", "contract", "sample"},
}
LIB["api"] = set(LIB)  # any lib folder
BACKEND = {"base", "quant", "contract"}
OURS = ("lib/", "backends/", "include/", "examples/", "tests/", "perf/", "shaders/")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*(?:include|define[ \t]+HWY_TARGET_INCLUDE)[ \t]+["<]([^">]+)[">]', re.M)


def allowed(folder, name):
    """Whether a file in `folder` may include `name`, which is one of ours."""
    to = name.split("/")
    if folder[0] == "lib":
        if name == "engine.h":
            return folder[1] == "api"
        return to[0] == "lib" and (to[1] == folder[1] or to[1] in LIB[folder[1]])
    if folder[0] == "backends":
        if to[0] == "lib":
            return to[1] in BACKEND
        return to[0] == "backends" and (folder == ("backends",) or to[1] == folder[1])
    if folder[0] == "examples":
        return name == "engine.h" or to[0] in ("common", "examples")
    return name not in ("engine.h",)  # include/


def check(root):
    found = []
    for path in files(root, "include", "lib", "backends", "examples"):
        folder = path.parts[:-1][:2]
        text = without_comments(read(root, path))
        if folder[0] == "lib" and (len(folder) < 2 or folder[1] not in LIB):
            found.append(f"{path}:1: not in a folder of the architecture")
            continue
        for match in INCLUDE.finditer(text):
            name, where = match[1], f"{path}:{line_of(text, match.start())}"
            if name == "engine.h" or name.startswith(OURS) or (folder[0] == "examples" and name.startswith("common/")):
                if not allowed(folder, name):
                    found.append(f"{where}: {'/'.join(folder)} may not include {name}")
            elif folder[0] != "examples" and (root / path.parent / name).is_file():
                found.append(f"{where}: write {name} from the root of the repository")
    return found


CASES = [
    ("base includes file", {"lib/base/a.h": '#include "lib/file/b.h"\n'}, "lib/base may not include lib/file/b.h"),
    ("file includes base", {"lib/file/a.h": '#include "lib/base/b.h"\n#include "absl/status/status.h"\n'}, None),
    ("session includes plan", {"lib/session/a.cc": '#  include "lib/plan/b.h"\n'}, "may not include lib/plan"),
    ("session includes model", {"lib/session/a.cc": '\n#include "lib/model/b.h"\n'}, "a.cc:2: lib/session may not"),
    ("text includes engine.h", {"lib/text/a.cc": '#include "engine.h"\n'}, "may not include engine.h"),
    ("api includes everything", {"lib/api/a.cc": '#include "engine.h"\n#include "lib/plan/a.h"\n'}, None),
    ("api is included", {"lib/session/a.cc": '#include "lib/api/b.h"\n'}, "may not include lib/api"),
    ("api includes a backend", {"lib/api/a.cc": '#include "backends/cpu/b.h"\n'}, "may not include backends"),
    ("backend includes plan", {"backends/cpu/a.cc": '#include "lib/plan/b.h"\n'}, "may not include lib/plan"),
    ("backend includes another", {"backends/cpu/a.cc": '#include "backends/cuda/b.h"\n'}, "may not include backends/cuda"),
    ("the table includes backends", {"backends/kernel_rows.cc": '#include "backends/cpu/a.inc"\n'}, None),
    ("a Highway target include", {"backends/cpu/a.cc": '#define HWY_TARGET_INCLUDE "lib/plan/b.cc"\n'}, "lib/plan/b.cc"),
    ("an example includes lib", {"examples/a.c": '#include "lib/base/b.h"\n'}, "may not include lib/base"),
    ("an example includes engine.h", {"examples/a.c": '#include "common/c.h"\n#include "engine.h"\n'}, None),
    ("a relative include", {"lib/base/a.cc": '#include "b.h"\n', "lib/base/b.h": "\n"}, "from the root"),
    ("a relative include of a program", {"examples/common/a.c": '#include "b.h"\n', "examples/common/b.h": "\n"}, None),
    ("an include in a comment", {"lib/base/a.cc": '// #include "lib/file/b.h"\n/*\n#include "lib/file/b.h"\n*/\n'}, None),
    ("an unknown folder", {"lib/extras/a.cc": "\n"}, "not in a folder"),
]

if __name__ == "__main__":
    main(check, CASES, __doc__)
