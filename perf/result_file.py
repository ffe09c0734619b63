"""Result files: JSON lines, one file a machine and commit, appended as lanes end, so that a run can be resumed."""

import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "perf" / "results"


def commit():
    """Short id of the checkout, with -dirty where tracked files outside perf/results differ from it."""

    def git(*arguments):
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout.strip()

    name = git("rev-parse", "--short=10", "HEAD") or "unknown"
    dirty = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!perf/results")
    return name + ("-dirty" if dirty else "")


def machine_name(machine):
    """Such as amd-epyc-25-17-2c."""
    text = f"{machine['cpu']}-{machine['cpu_family']}-{machine['cpu_model']}-{machine['cores_online']}c"
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(r\)|\(tm\)|processor|cpu|@.*ghz", "", text.lower())).strip("-")


class ResultFile:
    """Appends records to a file and knows what is in it."""

    def __init__(self, path):
        self.path = Path(path)
        self.records = read(self.path) if self.path.is_file() else []

    def add(self, record):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a") as file:
            file.write(json.dumps(record, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.records.append(record)

    def has(self, kind, **fields):
        """Whether a record has these values; of a list, all that are asked for."""
        for record in self.records:
            if record["kind"] == kind and all(
                set(v) <= set(record.get(k, [])) if isinstance(v, (list, tuple)) else record.get(k) == v
                for k, v in fields.items()
            ):
                return True
        return False

    def traces(self):
        """Folder of the .tokens.txt files."""
        return self.path.with_suffix("")

    def write_trace(self, name, lines):
        folder = self.traces()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.tokens.txt"
        path.write_text("\n".join(lines) + "\n")
        return str(path.relative_to(self.path.parent))


def read(path):
    """All records; a torn last line (an interrupted run) is left out."""
    records = []
    for line in Path(path).read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def latest(records, kind, *keys):
    """The last record of a kind for each combination of keys, in the order of their first appearance."""
    out = {}
    for record in records:
        if record["kind"] == kind:
            out[tuple(record.get(k) for k in keys)] = record
    return out
