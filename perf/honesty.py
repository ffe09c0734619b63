"""What a measured arm must prove before its numbers count. Each check answers one way of being fooled: it returns the
reasons why the arm is void, [] where it is proven.

A "run" is one context of one arm (engine_arm.py, peer_arm.py); a "block" is one timed piece of work in it.
"""

import os
from pathlib import Path

FUSED = "planned-fused"
MODE_NUMBERS = {"reference": 1, "planned": 2, "planned-fused": 3}
# Blocks of one lane whose clock probe differs by more than this did not run on the same machine.
STEADY = 1.10
# A thread that used less CPU time than this part of the busiest one did no share of the work.
WORKS = 0.2


def mode(asked, stats, fusions):
    """The mode that ran, by the session's own word and by the fusions that were counted."""
    why = []
    if stats["mode"] != MODE_NUMBERS[asked]:
        names = {v: k for k, v in MODE_NUMBERS.items()}
        why.append(f"asked for mode {asked}, ran {names.get(stats['mode'], stats['mode'])}")
    ran = [name for name, calls in fusions.items() if calls]
    if asked == FUSED and not ran:
        why.append("mode planned-fused, but no fusion has run")
    if asked != FUSED and ran:
        why.append(f"mode {asked}, but fusions ran: {', '.join(ran)}")
    return why


def target(asked, stats, kernels):
    """The CPU target, and that the matmuls of a vector target are no scalar rows."""
    why = []
    if asked and stats["target"] != asked:
        why.append(f"asked for target {asked}, ran {stats['target']}")
    if stats["target"] != "scalar":
        scalar = [k for k in kernels if k.startswith(("matmul", "attention")) and k.endswith("_scalar")]
        if scalar:
            why.append(f"target {stats['target']}, but scalar rows ran: {', '.join(scalar)}")
    return why


def route(planned, ran, n_single):
    """Kernels counted over n_single decodes of one token against those that the plan names: {name: calls}."""
    why = []
    for name in sorted(set(planned) | set(ran)):
        expected, counted = planned.get(name, 0) * n_single, ran.get(name, 0)
        if expected != counted:
            why.append(f"{name} ran {counted} times, the plan says {expected}")
    return why


def layout(weights, mode_name, stats, kernels):
    """Packed weights ran from packed rows, stored ones (and the reference) did not."""
    matmuls = [k for k in kernels if k.startswith("matmul")]
    packed = [k for k in matmuls if "rows16" in k]
    if weights == "packed" and mode_name != "reference":
        if not stats["packed_bytes"] or not packed:
            return ["asked for packed weights, but every matmul read them as stored"]
    elif packed:
        return [f"asked for stored weights, but packed rows ran: {', '.join(packed)}"]
    return []


def machine_cores():
    """Cores of this machine that are online, whatever this process may use."""
    return os.sysconf("SC_NPROCESSORS_ONLN")


def thread_affinities(pid="self"):
    """Thread -> cores that it may use."""
    out = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            out[int(task.name)] = len(os.sched_getaffinity(int(task.name)))
        except (ProcessLookupError, FileNotFoundError):
            pass  # ended meanwhile
    return out


def affinity(affinities, cores):
    """Full machine, no pinning: every thread may use every core."""
    pinned = {t: n for t, n in affinities.items() if n < cores}
    if not pinned:
        return []
    fewest = min(pinned.values())
    return [f"{len(pinned)} of {len(affinities)} threads are pinned: {fewest} of {cores} cores allowed"]


class Contexts:
    """Remembers every context of the process, so that none is measured twice under another name."""

    def __init__(self):
        self._seen = set()

    def fresh(self, run):
        """Before the first token of a lane."""
        why = []
        if run.identity in self._seen:
            why.append(f"context {run.identity} was used before")
        self._seen.add(run.identity)
        if run.position() != 0:
            why.append(f"a fresh context holds {run.position()} tokens")
        if run.evaluations() != 0:
            why.append(f"a fresh context has evaluated {run.evaluations()} tokens")
        return why


def evaluations(run, n_tokens, position):
    """After the work: as many tokens were evaluated as the lane asks for, and they are in the context."""
    why = []
    if run.evaluations() != n_tokens:
        why.append(f"{run.evaluations()} tokens were evaluated, the lane has {n_tokens}")
    if run.position() != position:
        why.append(f"the context ends at {run.position()}, the lane at {position}")
    return why


def threads(blocks, asked):
    """As many threads worked as were asked for. blocks: for each block {thread: CPU time}, of all threads. Threads of a
    new context are new ones, so they are told apart by rank: the busiest of every block, the second, ..."""
    ranks = {}
    for busy in blocks:
        for rank, ns in enumerate(sorted(busy.values(), reverse=True)):
            ranks[rank] = ranks.get(rank, 0) + ns
    working = sum(1 for ns in ranks.values() if ns > WORKS * ranks[0])
    if working == asked:
        return []
    return [f"asked for {asked} threads, {working} did the work"]


def steady(blocks):
    """Clock probes around the blocks of all arms of a lane: [(arm, ms), ...]. A machine that slowed down between two
    arms compares nothing; one that wavers alike for all does."""
    by_arm = {}
    for arm, ms in blocks:
        by_arm.setdefault(arm, []).append(ms)
    best = {arm: min(ms) for arm, ms in by_arm.items()}
    middle = {arm: sorted(ms)[len(ms) // 2] for arm, ms in by_arm.items()}
    why = []
    for what, values in (("best", best), ("median", middle)):
        slow, fast = max(values, key=values.get), min(values, key=values.get)
        if values[slow] > STEADY * values[fast]:
            why.append(
                f"throttled: the {what} clock probe of {slow} took {values[slow]:.2f} ms, of {fast} {values[fast]:.2f} ms"
            )
    return why


def counter_sees_threads(count, allocate_elsewhere, n=1000):
    """An allocation counter must count what other threads allocate. allocate_elsewhere(n): n blocks, on a thread of
    its own."""
    before = count()
    if before < 0:
        return ["allocations cannot be counted here"]
    allocate_elsewhere(n)
    seen = count() - before
    return [] if seen >= n else [f"the allocation counter saw {seen} of {n} allocations of another thread"]


def is_peer(library, own_library, mapped):
    """A peer runs its own library, which is not ours. library: the file with its code; mapped: files of the process."""
    own, library = os.path.realpath(own_library), os.path.realpath(library)
    why = []
    if library == own or Path(library).name.startswith("libengine"):
        why.append("the peer's row runs our own code")
    if library not in mapped:
        why.append(f"the peer's library {library} is not loaded")
    return why


def mapped_files():
    """Real paths of all files mapped into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {os.path.realpath(line.split(None, 5)[5]) for line in lines if "/" in line}


def same_output(choices):
    """Every block of an arm chose the same tokens: {block: tuple of ids}."""
    different = len({tuple(c) for c in choices})
    return [] if different <= 1 else [f"the blocks chose {different} different outputs"]
