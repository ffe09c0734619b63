#!/usr/bin/env python3
"""Collects published chat templates that a PyPI package ships, for test_chat_templates.py: chat_templates.json in the
model cache, {name: source}.

    python tests/parity/make_templates.py        needs pip

They are the string constants NAME_template in chat_templates.py of package unsloth (29 MB), which is read and not run.
"""
import ast
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from models import models_dir

PACKAGE = "unsloth==2026.10.9"
FILE = "chat_templates.json"


def constant(node, known):
    """The string that an expression of constants, sums and known names makes; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant(node.left, known), constant(node.right, known)
        return None if left is None or right is None else left + right
    return None


def templates_of(source):
    known = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = constant(node.value, known)
            if value is not None:
                known[node.targets[0].id] = value
    return {
        name.removesuffix("_template"): text
        for name, text in known.items()
        if name.endswith("_template") and "message" in text and ("{%" in text or "{{" in text)
    }


def main():
    path = models_dir() / FILE
    if not path.is_file():
        models_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                       "--only-binary=:all:", "--dest", folder, PACKAGE]
            subprocess.run(command, check=True)
            (wheel,) = Path(folder).glob("*.whl")
            templates = templates_of(zipfile.ZipFile(wheel).read("unsloth/chat_templates.py").decode())
        path.write_text(json.dumps(templates, indent=1), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
