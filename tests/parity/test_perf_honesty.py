"""The measuring harness (perf/) finds out when it is fooled. Six classical lies are planted, each has to void its arm:
a mode that did not run, a route that fell through, an allocation counter blind to other threads, pinned cores, a peer
whose context is used again, a machine that slows down between two arms. No test depends on time.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import threading

import pytest

import engine_ctypes
import models

PERF = engine_ctypes.ROOT / "perf"
sys.path.insert(0, str(PERF))

import bench_allocations  # noqa: E402
import block_probe  # noqa: E402
import engine_arm  # noqa: E402
import honesty  # noqa: E402
from lane import Lane, LaneRun, Measured, compare  # noqa: E402

CORES = honesty.machine_cores()
LANE = Lane("generation", "generation", 8, 6)
# What a busy machine may say of honest arms; each has a test of its own.
OF_THE_MACHINE = ("throttled", "did the work", "pinned")


@pytest.fixture(scope="module")
def model(engine):
    path = models.find_model("smollm2")
    if path is None:
        pytest.skip("smollm2: run examples/fetch_model.sh smollm2")
    with engine_arm.open_model(path) as opened:
        yield opened


@pytest.fixture(autouse=True)
def constant_clock(monkeypatch):
    monkeypatch.setattr(block_probe, "clock_probe_ms", lambda: 1.0)


def run(arms, lane=LANE, contexts=None):
    """Measures; {arm name: its reasons}, without those that only the machine is to blame for."""
    ids = list(range(1, 32))
    measured = LaneRun(lane, arms, ids, contexts or honesty.Contexts(), CORES).measure(2)
    return {m.arm.name: m.void for m in measured}, measured


def of_arm(reasons):
    return [r for r in reasons if not any(text in r for text in OF_THE_MACHINE)]


def arm(model, name="planned-fused", cls=engine_arm.EngineArm, **options):
    made = cls(name, model, 1)
    for key, value in options.items():
        setattr(made, key, value)
    return made


@pytest.mark.parametrize("kind", ["generation", "prefill", "passes", "context"])
def test_honest_arms_are_proven(model, kind):
    lane = Lane(kind, kind, 8, 6 if kind in ("generation", "context") else 0)
    void, measured = run([arm(model, name) for name in engine_arm.ARMS], lane)
    for name, reasons in void.items():
        assert of_arm(reasons) == [], name
    assert len({m.checksum for m in measured}) == 1, "all modes give the same bits"
    assert len({m.choices[0] for m in measured}) == 1


# ---- a mode that did not run


@pytest.mark.parametrize("asked, ran", [("planned-fused", "reference"), ("planned-fused", "planned"), ("planned", "reference"),
                                        ("reference", "planned")])  # fmt: skip
def test_a_mode_that_did_not_run(model, asked, ran):
    class Pretender(engine_arm.EngineArm):
        def start(self, n_ctx):
            self.mode, told = ran, self.mode
            try:
                return super().start(n_ctx)
            finally:
                self.mode = told

    void, _ = run([arm(model, asked, Pretender)])
    assert f"asked for mode {asked}, ran {ran}" in void[asked]


def test_a_mode_that_only_says_so():
    stats = {"mode": 3}
    assert honesty.mode("planned-fused", stats, {"F1": 0, "F3": 0})
    assert not honesty.mode("planned-fused", stats, {"F1": 0, "F3": 7})
    assert honesty.mode("planned", {"mode": 2}, {"F1": 1})


# ---- a route that fell through


class _OtherSession(engine_arm.EngineArm):
    """Starts sessions with other options than it plans with."""

    changed = {}

    def start(self, n_ctx):
        started = super().start(n_ctx)
        if self._planned is None:
            self.planned_per_token(started)  # the honest plan
        started.session.close()
        options = {"mode": self.mode, "weights": self.weights, "threads": 1, "n_ctx": n_ctx, **self.changed}
        started.session = self.model.session(**options)
        return started


def test_a_route_that_fell_through_to_scalar_rows(model):
    if model.targets()[0] == "scalar":
        pytest.skip("there is no other target than scalar")
    void, _ = run([arm(model, "planned-fused-stored", _OtherSession, changed={"kernels": "matmul*__cpu_scalar"})])
    reasons = void["planned-fused-stored"]
    assert any("scalar rows ran: matmul" in r for r in reasons)
    assert any("the plan says" in r for r in reasons)


def test_packed_weights_that_are_not(model):
    void, _ = run([arm(model, "planned-fused", _OtherSession, changed={"weights": "stored"})])
    assert "asked for packed weights, but every matmul read them as stored" in void["planned-fused"]


def test_stored_weights_that_are_packed(model):
    void, _ = run([arm(model, "planned-fused-stored", _OtherSession, changed={"weights": "packed"})])
    assert any(r.startswith("asked for stored weights, but packed rows ran") for r in void["planned-fused-stored"])


def test_one_operation_that_was_left_out():
    planned, ran = {"matmul": 7, "rms_norm": 3}, {"matmul": 28, "rms_norm": 12}
    assert honesty.route(planned, ran, 4) == []
    assert honesty.route(planned, {**ran, "matmul": 27}, 4) == ["matmul ran 27 times, the plan says 28"]
    assert honesty.route(planned, {**ran, "matmul_slow": 1}, 4) == ["matmul_slow ran 1 times, the plan says 0"]


# ---- an allocation counter that is blind to other threads


def counter_library(folder, blind):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    source = (PERF / "allocation_count.c").read_text()
    honest = "static int64_t n_allocations,"
    assert honest in source
    path = folder / "counted.c"
    path.write_text(source.replace(honest, "static __thread int64_t n_allocations,") if blind else source)
    flags = ["-O1", "-fPIC", "-shared", "-fno-builtin", "-DALLOCATION_COUNT_PRELOAD", f"-I{PERF}"]
    subprocess.run([compiler, *flags, str(path), "-o", str(folder / "counter.so")], check=True)
    return folder / "counter.so"


@pytest.mark.parametrize("blind", [False, True])
def test_an_allocation_counter_blind_to_other_threads(tmp_path, blind):
    code = (
        f"import sys; sys.path.insert(0, {str(PERF)!r})\n"
        "import bench_allocations as b, honesty\n"
        "print(honesty.counter_sees_threads(b.process_counter(), b.allocate_elsewhere))"
    )
    environment = {**os.environ, "LD_PRELOAD": str(counter_library(tmp_path, blind))}
    done = subprocess.run([sys.executable, "-B", "-c", code], env=environment, capture_output=True, text=True, check=True)
    found = done.stdout.strip()
    assert ("the allocation counter saw" in found) if blind else found == "[]"


def test_a_counter_that_cannot_count():
    assert honesty.counter_sees_threads(lambda: -1, bench_allocations.allocate_elsewhere)


# ---- pinned cores


@contextlib.contextmanager
def pinned_thread():
    """Another thread of this process, pinned to one core."""
    ready, end = threading.Event(), threading.Event()

    def work():
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # of the calling thread only
        ready.set()
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: pinning changes nothing")
def test_pinned_cores(model):
    if len(os.sched_getaffinity(0)) == CORES:
        assert not any("pinned" in r for r in run([arm(model)])[0]["planned-fused"])
    with pinned_thread():
        void, _ = run([arm(model)])
    assert any("pinned: 1 of" in r for r in void["planned-fused"])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: pinning changes nothing")
def test_a_pinned_process():
    code = f"import sys; sys.path.insert(0, {str(PERF)!r})\nimport honesty\nprint(honesty.affinity(honesty.thread_affinities(), honesty.machine_cores()))"
    core = min(os.sched_getaffinity(0))
    done = subprocess.run([sys.executable, "-B", "-c", code], preexec_fn=lambda: os.sched_setaffinity(0, [core]),
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert "1 of 1 threads are pinned" in done.stdout


def test_threads_that_did_not_work():
    assert honesty.threads([{1: 100, 2: 90}, {1: 100, 3: 80}], 2) == []
    assert honesty.threads([{1: 100, 2: 2}, {1: 100, 3: 1}], 2) == ["asked for 2 threads, 1 did the work"]
    assert honesty.threads([{1: 100, 2: 95}], 1) == ["asked for 1 threads, 2 did the work"]


# ---- a peer whose context is used again


class _Peer(engine_arm.EngineArm):
    """Plays the peer: other code is not at hand in every checkout."""

    kind = "peer"


class _SameContext(_Peer):
    """Hands out its first context again and again."""

    kept = None

    def start(self, n_ctx):
        if self.kept is None:
            self.kept = super().start(n_ctx)
            self.kept.close = lambda: None
        return self.kept


class _ClearedContext(_SameContext):
    """Clears its context and wraps it anew, so that it looks fresh."""

    def start(self, n_ctx):
        old = super().start(n_ctx)
        old.session.truncate(0)
        again = engine_arm.EngineRun.__new__(engine_arm.EngineRun)
        again.identity, again.session = ("engine", next(engine_arm._serials)), old.session
        again.close = lambda: None
        return again


def test_a_fresh_peer_context(model):
    void, _ = run([arm(model), arm(model, "planned", _Peer)])
    assert of_arm(void["planned"]) == []


def test_a_reused_peer_context(model):
    void, _ = run([arm(model), arm(model, "planned", _SameContext)])
    assert any("was used before" in r for r in void["planned"])
    assert any("a fresh context holds 14 tokens" in r for r in void["planned"])
    assert of_arm(void["planned-fused"]) == []


def test_a_cleared_peer_context(model):
    void, _ = run([arm(model), arm(model, "planned", _ClearedContext)])
    assert any("a fresh context has evaluated 14 tokens" in r for r in void["planned"])


def test_a_peer_that_evaluates_less(model):
    class Lazy(_Peer):
        def start(self, n_ctx):
            started = super().start(n_ctx)
            honest, calls = started.evaluate, []

            def evaluate(ids):
                calls.append(honest(ids) if len(calls) < 3 else calls[-1])
                return calls[-1]

            started.evaluate = evaluate
            return started

    void, _ = run([arm(model), arm(model, "planned", Lazy)])
    assert any("tokens were evaluated, the lane has 14" in r for r in void["planned"])


def test_a_peer_that_runs_our_own_code():
    own = engine_arm.own_library()
    assert "the peer's row runs our own code" in honesty.is_peer(own, own, {os.path.realpath(own)})
    assert honesty.is_peer("/x/libllama.so", own, {"/x/libllama.so"}) == []
    assert honesty.is_peer("/x/libllama.so", own, set()) == ["the peer's library /x/libllama.so is not loaded"]


# ---- a machine that slows down between two arms


def test_throttling_between_arms(model, monkeypatch):
    clock = [1.0]
    monkeypatch.setattr(block_probe, "clock_probe_ms", lambda: clock[0])

    class Hot(engine_arm.EngineArm):
        def start(self, n_ctx):
            clock[0] = 1.3 if self.name == "planned" else 1.0
            return super().start(n_ctx)

    void, _ = run([arm(model, "planned-fused", Hot), arm(model, "planned", Hot)])
    for reasons in void.values():
        assert any(r.startswith("throttled") and "planned took 1.30 ms" in r for r in reasons)


def test_a_machine_that_wavers_for_all_arms_alike():
    assert honesty.steady([("a", 1.0), ("b", 1.02), ("a", 1.4), ("b", 1.38), ("a", 1.0), ("b", 1.0)]) == []
    assert honesty.steady([("a", 1.0), ("b", 1.0), ("a", 1.0), ("b", 1.2), ("a", 1.0), ("b", 1.2)])


# ---- output and verdicts


def test_blocks_that_choose_different_tokens():
    assert honesty.same_output([(1, 2), (1, 2)]) == []
    assert honesty.same_output([(1, 2), (1, 3)])


def _measured(choices, margins=(), void=()):
    m = Measured(engine_arm.EngineArm("planned", None, 1))
    m.choices, m.margins, m.void = [choices], list(margins), list(void)
    return m


def test_verdicts():
    peer = _measured((1, 2, 3), (0.5, 0.25, 0.125))
    assert compare(_measured((1, 2, 3)), peer) == {"verdict": "exact"}
    drift = compare(_measured((1, 9, 3)), peer)
    assert drift == {"verdict": "drift", "first_difference": 1, "peer_top2_margin": 0.25}
    assert compare(_measured((1, 2, 3), void=["x"]), peer)["verdict"] == "not comparable"
    assert compare(_measured((1, 2, 3)), None)["verdict"] == "not comparable"
    assert compare(_measured((1, 2)), peer)["verdict"] == "not comparable"
