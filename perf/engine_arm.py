"""Our arms: a mode of the engine, with packed or stored weights, through the binding of examples/python."""

import itertools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples" / "python"))

import engine  # noqa: E402
import honesty  # noqa: E402

ARMS = {  # name -> mode, weights
    "reference": ("reference", "stored"),
    "planned": ("planned", "packed"),
    "planned-fused": ("planned-fused", "packed"),
    "planned-fused-stored": ("planned-fused", "stored"),
}
_serials = itertools.count(1)


class EngineRun:
    """One session. Ids in, logits out; counts come from the session."""

    def __init__(self, arm, n_ctx):
        self.identity = ("engine", next(_serials))
        self.session = arm.model.session(
            mode=arm.mode, weights=arm.weights, threads=arm.threads, n_ctx=n_ctx, target=arm.target
        )

    def evaluate(self, ids):
        """Logits after the last id, float32 [V]."""
        return self.session.decode(ids)

    def evaluate_all(self, ids):
        """Logits after every id, float32 [T, V]."""
        return self.session.decode_all(ids)

    def position(self):
        return self.session.position

    def evaluations(self):
        return self.session.stats()["decoded_tokens"]

    def truncate(self, n):
        self.session.truncate(n)

    def counters(self):
        return self.session.kernels()

    def close(self):
        self.session.close()


class EngineArm:
    """A mode of the engine on an open model (shared between arms)."""

    kind = "engine"

    def __init__(self, name, model, threads, target=None):
        self.name, self.model, self.threads, self.target = name, model, threads, target
        self.mode, self.weights = ARMS[name]
        self._planned = None

    def start(self, n_ctx):
        return EngineRun(self, n_ctx)

    def working_threads(self, tokens_per_call):
        """Threads that this arm puts to work: the reference does not split a single token."""
        return 1 if self.mode == "reference" and tokens_per_call == 1 else self.threads

    def planned_per_token(self, run):
        """Kernels of one decoded token by the plan; None for the reference, which obeys none."""
        if self.mode == "reference":
            return None
        if self._planned is None:
            plan = run.session.plan()
            kernels = plan.to_dict()["dispatch"]["kernels"]
            plan.close()
            self._planned = {k["kernel"]: k["per_token"] for k in kernels if k["per_token"]}
        return self._planned

    def prove(self, run):
        """(why it is void, what ran) of a run that has done its work."""
        stats, kernels, fusions = run.session.stats(), run.counters(), run.session.fusions()
        why = honesty.mode(self.mode, stats, fusions)
        why += honesty.target(self.target, stats, kernels)
        why += honesty.layout(self.weights, self.mode, stats, kernels)
        return why, {
            "mode": {v: k for k, v in honesty.MODE_NUMBERS.items()}[stats["mode"]],
            "target": stats["target"],
            "kernels": kernels,
            "fusions": {name.split()[0]: calls for name, calls in fusions.items()},
            "kv_bytes": stats["kv_bytes"],
            "packed_bytes": stats["packed_bytes"] if self.weights == "packed" else 0,
            "n_ctx": stats["n_ctx"],
            "library": str(self.model.lib.path),
        }

    def bytes_per_token(self, run):
        return run.session.stats()["bytes_per_token"]


def open_model(path):
    return engine.Model(path)


def own_library():
    return str(engine.library_path())
