"""Every function of include/engine.h is documented completely and in the agreed order.

A block `/* name: what it does.` right above the declaration, then each parameter with a direction,
then Effect, Threads, Cancel (optional), Errors, Since. An error list names codes of the header.
"""

import re

from check_common import line_of, main, read

HEADER = "include/engine.h"
DECLARATION = re.compile(r"^ENGINE_API\s+([^;{]*?)\b(engine_\w+)\s*\(([^;]*?)\)\s*;", re.M | re.S)
FIELDS = ["Effect", "Threads", "Cancel", "Errors", "Since"]
REQUIRED = ["Effect", "Threads", "Errors", "Since"]
FIELD = re.compile(r"^ \* (" + "|".join(FIELDS) + r")\b[ ]*(.*)$")
PARAMETER = re.compile(r"^ \*   (\w+(?:, \w+)*)\s+(in/out|in|out)\b\s*(.*)$")


def parameters(arguments):
    """Names of the parameters of a prototype."""
    arguments = re.sub(r"\s+", " ", arguments).strip()
    if arguments in ("", "void"):
        return []
    return [re.search(r"(\w+)\s*(?:\[\d*\])?$", part.strip())[1] for part in arguments.split(",")]


def check_block(block, name, names, codes):
    """What is wrong with one comment."""
    lines = block.split("\n")
    if not re.match(rf"/\* {name}: \S", lines[0]):
        return [f"the comment must begin with '/* {name}: ' and say what it does"]
    wrong, documented, fields, current = [], [], [], None
    for line in lines[1:]:
        field, parameter = FIELD.match(line), PARAMETER.match(line)
        if field:
            current = [field[1], field[2].strip()]
            fields.append(current)
        elif parameter and not fields:
            documented += parameter[1].split(", ")
            if not parameter[3]:
                wrong.append(f"parameter {parameter[1]} has a direction only")
        elif current and line.strip(" */"):
            current[1] += " " + line.strip(" */")
    if documented != names:
        wrong.append(f"parameters are {names}, documented with a direction are {documented}")
    order = [name for name, _ in fields]
    if order != [f for f in FIELDS if f in order] or any(f not in order for f in REQUIRED):
        wrong.append(f"fields are {order}, expected {REQUIRED} in this order")
    for field, text in fields:
        if not text:
            wrong.append(f"{field} is empty; write — for none")
        if field == "Since" and not re.fullmatch(r"\d+\.\d+", text):
            wrong.append(f"Since is {text!r}, expected a version such as 0.1")
        if field == "Errors" and text != "—":
            named = [w for w in re.findall(r"\b[A-Z][A-Z_]{3,}\b", text) if w != "NULL"]
            if not named and not re.search(r"\bas (those of )?engine_\w+", text):
                wrong.append("Errors names no status code; write — for none")
            wrong += [f"Errors names {w}, which is no status code" for w in named if w not in codes]
    return wrong


def check(root):
    text = read(root, HEADER)
    codes = set(re.findall(r"^\s*ENGINE_([A-Z_]+)\s*=\s*\d+", text, re.M))
    found, n_functions = [], 0
    for match in DECLARATION.finditer(text):
        n_functions += 1
        name, where = match[2], f"{HEADER}:{line_of(text, match.start())}"
        before = text[: match.start()]
        start = before.rfind("/*")
        block = before[start:] if start >= 0 else ""
        if not block.endswith("*/\n") or block.count("*/") != 1:
            found.append(f"{where}: {name} has no comment right above it")
            continue
        wrong = check_block(block[: -len("*/\n")].rstrip(), name, parameters(match[3]), codes)
        found += [f"{where}: {name}: {w}" for w in wrong]
    declared = len(re.findall(r"^ENGINE_API\b", text, re.M))
    if not n_functions or declared != n_functions:
        found.append(f"{HEADER}:1: {declared} lines begin with ENGINE_API, {n_functions} were understood")
    return found


GOOD = """enum {
  ENGINE_OK = 0,
  ENGINE_ARGUMENT = 10, /* x */
};
/* engine_a_b: do it.
 *
 *   a        in   handle
 *   n        out  count       1 ..
 *
 * Effect   x
 * Threads  any
 * Errors   ARGUMENT (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_a_b(const engine_a *a,
                              uint64_t *n);
"""


def planted(name, old, new, expected):
    assert old in GOOD
    return (name, {HEADER: GOOD.replace(old, new)}, expected)


CASES = [
    ("good", {HEADER: GOOD}, None),
    planted("no block", "/* engine_a_b", "/* note */\nint x;\n/* engine_a_c", "must begin with"),
    planted("code between", " */\nENGINE_API", " */\nint x;\nENGINE_API", "no comment right above"),
    planted("no parameter", " *   n        out  count       1 ..\n", "", "documented with a direction"),
    planted("no direction", "n        out ", "n            ", "documented with a direction"),
    planted("wrong name", " *   a        in ", " *   b        in ", "documented with a direction"),
    planted("no Threads", " * Threads  any\n", "", "fields are"),
    planted("wrong order", " * Effect   x\n * Threads  any\n", " * Threads  any\n * Effect   x\n", "fields are"),
    planted("empty Effect", "Effect   x", "Effect", "Effect is empty"),
    planted("bad Since", "Since    0.1", "Since    soon", "Since is"),
    planted("unknown code", "ARGUMENT (same)", "ARGUMENTS (same)", "no status code"),
    planted("another's codes", "ARGUMENT (same)", "as engine_a_c", None),
    planted("no code", "ARGUMENT (same)", "some", "names no status code"),
    planted("not understood", "uint64_t *n);", "uint64_t *n) {}", "were understood"),
]

if __name__ == "__main__":
    main(check, CASES, __doc__)
