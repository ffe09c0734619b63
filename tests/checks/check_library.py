"""What the built library shows: exported symbols, what it needs, calls and state inside its objects.

  check_library.py exports LIBENGINE.SO     equal to tests/abi/exports.txt (--write records them)
  check_library.py archive LIBENGINE.A      no global symbol but engine_*
  check_library.py needed LIBENGINE.SO      NEEDED holds libc, libm and the loader only
  check_library.py calls LIBENGINE_CORE.A   no aborting, printing or environment call; no libm in kernels
  check_library.py state LIBENGINE_CORE.A   no variable in a writable section
  check_library.py --self-test [CC]         plants each fault in a small library and finds it

The C++ runtime is linked in (static libstdc++ and libgcc), so that the library also runs where they
are older. Sanitizer and coverage builds differ in all of this and are not checked.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from check_common import ROOT

EXPORTS = ROOT / "tests" / "abi" / "exports.txt"
NEEDED = re.compile(r"libc\.so\.\d+|libm\.so\.\d+|ld-linux[\w.-]*\.so\.\d+|libpthread\.so\.0")
CALLS = set("exit _exit _Exit quick_exit raise kill signal sigaction __assert_fail printf vprintf fprintf vfprintf "
            "__printf_chk __fprintf_chk __vfprintf_chk puts fputs putchar putc fputc perror getenv secure_getenv setenv "
            "putenv system popen fork setlocale stdout stderr _ZSt4cout _ZSt4cerr _ZSt4clog".split())
# abort is not listed: the compiler itself calls it where a noexcept function would let an exception escape
# (through terminate) and headers of the standard library call it in paths that cannot be reached.
LIBM = [n + s for s in ("", "f", "l") for n in
        "exp exp2 expm1 log log2 log10 log1p sin cos sincos tan sinh cosh tanh asin acos atan atan2 pow cbrt hypot erf".split()]
# Not state of ours: libstdc++'s stream initialiser (Highway's headers include <ostream>), and the list of CPU targets
# that is computed once and never changes (with the guard of its initialisation), and the relocated address of a
# type or of the personality routine that exception tables name (DW.ref).
CONSTANT = re.compile(r"std::__ioinit|cpu_targets\(\)::list|DW\.ref\.")
WRITABLE = re.compile(r"\.(data|bss|tdata|tbss)(\.(?!rel\.ro)|$)|\*COM\*")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library):
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    return sorted({line.split()[2].split("@")[0] for line in lines if line.split()[1] != "A"})


def check_exports(library, expected=None):
    if expected is None:
        expected = EXPORTS.read_text().split() if EXPORTS.exists() else []
    now = exported(library)
    return [f"exports: {n} is exported, but not in tests/abi/exports.txt" for n in now if n not in expected] + [
        f"exports: {n} of tests/abi/exports.txt is not exported" for n in expected if n not in now]


def check_archive(archive):
    lines = run("nm", "-g", "--defined-only", archive).splitlines()
    # "u": constants of the standard library's inline functions, which the linker merges whoever defines them.
    names = [line.split()[2] for line in lines if len(line.split()) == 3 and line.split()[1] != "u"]
    found = [f"archive: {n} is global" for n in names if not n.startswith("engine_")]
    return found if names else ["archive: it has no symbol"]


def check_needed(library):
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", library))
    return [f"needed: {n} is neither libc, libm nor the loader" for n in names if not NEEDED.fullmatch(n)]


def forward_stems():
    """Stems of the sources of the forward pass: objects in an archive have no folder."""
    return {p.stem for folder in ("backends", "lib/session") for p in (ROOT / folder).rglob("*.cc")}


def check_calls(archive, forward=None):
    forward = forward_stems() if forward is None else forward
    found, member = [], ""
    for line in run("nm", "--undefined-only", archive).splitlines():
        if line.endswith(":"):
            member = line[:-1]
        elif line.strip():
            name = line.split()[-1]
            if name in CALLS:
                found.append(f"calls: {member} uses {name}")
            if name in LIBM and member.split(".")[0] in forward:
                found.append(f"calls: {member} uses {name} of libm in the forward pass")
    return found


def check_state(archive):
    """Objects with a size in .data, .bss or thread-local sections; constants with addresses (.data.rel.ro) are fine."""
    found, member = [], ""
    for line in run("objdump", "-tC", archive).splitlines():
        header = re.match(r"(\S+):\s+file format", line)
        if header:
            member = header[1]
        symbol = re.match(r"[0-9a-f]+ (.{7}) (\S+)\t([0-9a-f]+)\s+(.*)$", line)
        if symbol and WRITABLE.match(symbol[2]) and int(symbol[3], 16) and not CONSTANT.search(symbol[4]):
            found.append(f"state: {member} keeps {symbol[4]} in {symbol[2]}")
    return found


CHECKS = {"exports": check_exports, "archive": check_archive, "needed": check_needed, "calls": check_calls, "state": check_state}


def self_test(compiler):
    failures, n_cases = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        def build(code, *options):
            source, out = Path(folder) / "kernel.c", str(Path(folder) / ("lib.so" if "-shared" in options else "lib.a"))
            source.write_text(code)
            Path(out).unlink(missing_ok=True)
            if "-shared" in options:
                run(compiler, "-fPIC", "-O1", str(source), "-o", out, *options)
            else:
                run(compiler, "-fPIC", "-O1", "-fno-builtin", "-c", str(source), "-o", str(source) + ".o")
                run("ar", "rcs", out, str(source) + ".o")
            return out

        def expect(name, found, part):
            nonlocal failures, n_cases
            n_cases += 1
            if (part is None and found) or (part is not None and not any(part in f for f in found)):
                failures += 1
                print(f"self-test {name}: expected {part!r}, got {found}")

        shared = build("int engine_a(void) { return 1; } int leak(void) { return 2; }", "-shared")
        expect("an extra symbol", check_exports(shared, ["engine_a"]), "leak is exported")
        expect("a missing symbol", check_exports(shared, ["engine_a", "engine_b", "leak"]), "engine_b of")
        expect("equal symbols", check_exports(shared, ["engine_a", "leak"]), None)
        expect("plain needs", check_needed(shared), None)
        shared = build("int engine_a(void) { return 1; }", "-shared", "-Wl,--no-as-needed", "-lstdc++")
        expect("the C++ runtime", check_needed(shared), "libstdc++")
        good = "extern double sqrt(double), exp(double); const int t[2] = {1, 2}; const char *const n[1] = {\"a\"};"
        expect("a global symbol", check_archive(build("int engine_a(void) { return 1; } int b;")), "b is global")
        expect("engine_ symbols", check_archive(build("int engine_a(void) { return 1; }")), None)
        archive = build(good + "double f(double x) { return sqrt(x) + exp(x); }")
        expect("exp elsewhere", check_calls(archive, set()), None)
        expect("exp in a kernel", check_calls(archive, {"kernel"}), "exp of libm")
        expect("constants", check_state(archive), None)
        expect("exit", check_calls(build("void exit(int); void f(void) { exit(1); }"), set()), "uses exit")
        expect("getenv", check_calls(build('char *getenv(const char*); char *f(void) { return getenv("A"); }'), set()), "getenv")
        expect("a counter", check_state(build("static int n; int f(void) { return ++n; }")), "keeps n in .bss")
        expect("a set variable", check_state(build("int n = 3;")), "keeps n in .data")
        expect("thread-local", check_state(build("_Thread_local int n;")), "keeps n in .tbss")
    print(f"{n_cases - failures} of {n_cases} self-tests passed")
    return 1 if failures else 0


def main():
    if sys.argv[1:2] == ["--self-test"]:
        sys.exit(self_test(sys.argv[2] if len(sys.argv) > 2 else "cc"))
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in CHECKS:
        sys.exit(__doc__)
    if sys.argv[3:] == ["--write"] and sys.argv[1] == "exports":
        EXPORTS.write_text("\n".join(exported(sys.argv[2])) + "\n")
        sys.exit(0)
    found = CHECKS[sys.argv[1]](sys.argv[2])
    print("\n".join(found) if found else "no violation")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
