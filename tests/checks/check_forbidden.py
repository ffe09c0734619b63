"""Calls that lib/ and backends/ must not make, and process-wide state that they must not keep.

Source patterns only; check_library.py looks at the compiled objects for the same faults.
"""

import re

from check_common import files, line_of, main, read, without_comments_and_strings

# Not preceded by a member access, a name or a qualifier other than std:: or ::.
CALL = r"(?<![\w.>:])(?:(?:std)?::)?(?:{})\s*\("
EVERYWHERE = [
    (CALL.format("abort|exit|_exit|_Exit|quick_exit|terminate|raise|kill|signal|sigaction"), "ends or disturbs the process"),
    (CALL.format("assert|ABSL_ASSERT|ABSL_HARDENING_ASSERT|HWY_ASSERT|HWY_DASSERT|HWY_ABORT|CHECK|DCHECK|ABSL_CHECK"), "aborts"),
    (CALL.format("v?printf|v?fprintf|puts|fputs|putchar|fputc|putc|perror|syslog"), "prints"),
    (r"\bstd::(?:cout|cerr|clog)\b|\b(?:stdout|stderr)\b", "prints"),
    (CALL.format("getenv|secure_getenv|setenv|putenv|unsetenv"), "touches the environment"),
    (CALL.format("system|popen|fork|setlocale"), "changes or starts a process"),
    (r"\bthread_local\b", "is process-wide state"),
    (r"(?<![\w.>:])throw\b", "throws; errors are values"),
    # A static that is neither constant nor a function: `static int n;`, `static Map map = ...`, `static T x{...}`.
    (r"^[ \t]*(?:inline[ \t]+)?static[ \t]+(?!(?:inline[ \t]+|constinit[ \t]+)?(?:constexpr|const)\b|_?assert\b|_cast\b)"
     r"[\w:<>,*& \t]+?[ \t*&]\w+(?:\[\w*\])?[ \t]*(?:;|=|\{)(?!=)", "is mutable process-wide state"),
]
# The forward pass has its own transcendentals (numerics.md rule 4); sqrt and fma are exactly rounded.
LIBM = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin",
        "acos", "atan", "atan2", "asinh", "acosh", "atanh", "pow", "cbrt", "hypot", "erf", "erfc", "tgamma", "lgamma"]
FORWARD = [(r"(?<![\w.>])(?:std::|(?<!:)::)(?:" + "|".join(LIBM) + r")[fl]?\s*\(|"
            r"(?<![\w.>:])(?:" + "|".join(LIBM) + r")[fl]\s*\(", "is libm; use our own")]


def check(root):
    found = []
    for path in files(root, "lib", "backends"):
        text = without_comments_and_strings(read(root, path))
        rules = EVERYWHERE + (FORWARD if path.parts[0] == "backends" or path.parts[1] == "session" else [])
        for pattern, why in rules:
            for match in re.finditer(pattern, text, re.M):
                what = " ".join(match[0].split()).rstrip("( ")
                found.append(f"{path}:{line_of(text, match.start())}: {what} {why}")
    return found


def case(name, line, expected, path="lib/base/a.cc"):
    return (name, {path: f"// job\n{line}\n"}, expected)


CASES = [
    case("abort", "void f() { std::abort(); }", "a.cc:2: std::abort ends"),
    case("exit", "  exit (1);", "exit ends"),
    case("_exit", "  ::_exit(1);", "::_exit ends"),
    case("assert", "  assert(x);", "assert aborts"),
    case("static_assert", "static_assert(sizeof(int) == 4);", None),
    case("HWY_ASSERT", "  HWY_ASSERT(x);", "aborts"),
    case("printf", '  printf("x");', "printf prints"),
    case("snprintf", '  snprintf(b, 4, "x"); std::snprintf(b, 4, "y");', None),
    case("cout", "  std::cout << 1;", "std::cout prints"),
    case("stderr", "  fwrite(p, 1, 1, stderr);", "stderr prints"),
    case("getenv", '  getenv("HOME");', "getenv touches"),
    case("a member named exit", "  loop.exit(); loop->abort(); Loop::exit();", None),
    case("a comment", "// abort() and printf()\n/* exit(1) */", None),
    case("a string", 'const char* s = "abort(); exit(1)";', None),
    case("throw", "  throw 1;", "throws"),
    case("mutable static", "static int counter = 0;", "mutable"),
    case("mutable static in a function", "  static std::map<int, int> cache;", "mutable"),
    case("mutable static with braces", "static Thing thing{1};", "mutable"),
    case("static array", "static int table[4];", "mutable"),
    case("constant static", "static const int a = 0;\n  static constexpr int b[] = {1};\nstatic constexpr Foo c{1};", None),
    case("static function", "static int f(int a = 0) { return a; }\nstatic absl::StatusOr<int> g();\nstatic Foo* h(int x);", None),
    case("thread_local", "thread_local int x;", "process-wide"),
    case("std::exp in a kernel", "float y = std::exp(x);", "libm", "backends/cpu/a.cc"),
    case("expf in a session", "float y = expf(x);", "libm", "lib/session/a.cc"),
    case("our own exp in a kernel", "float y = math::exp(x) + det::sin(x) + exp_f32(x);", None, "backends/cpu/a.cc"),
    case("sqrt and fma", "float y = std::sqrt(std::fma(x, x, x));", None, "backends/cpu/a.cc"),
    case("std::exp elsewhere", "double y = std::exp(x);", None),
]

if __name__ == "__main__":
    main(check, CASES, __doc__)
