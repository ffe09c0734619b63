"""Adds up JUnit files of CTest and pytest; prints "passed failed skipped", and names what failed on stderr.

CTest writes a test that could not be started as skipped too; here it counts as failed.
"""

import sys
import xml.etree.ElementTree as ElementTree


def verdict(case):
    skipped = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed"
    if case.get("status") == "notrun":
        reason = skipped.get("message", "") if skipped is not None else ""
        return "skipped" if reason.startswith("SKIP_") else "failed"
    return "skipped" if skipped is not None or case.get("status") == "disabled" else "passed"


def count(paths):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            result = verdict(case)
            counts[result] += 1
            if result == "failed":
                print(f"failed: {case.get('classname') or ''} {case.get('name')}", file=sys.stderr)
    return counts


if __name__ == "__main__":
    print(*count(sys.argv[1:]).values())
