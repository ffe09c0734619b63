"""What a block costs besides its wall time: CPU time by thread, foreign load, clock speed, page faults."""

import hashlib
import os
import resource
import time
from pathlib import Path

_PROBE = bytes(1 << 20)
_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


def clock_probe_ms():
    """A fixed piece of computing that stays in the caches: best of five, so that a neighbour counts little and a slower
    clock counts in full."""
    best = 1e9
    for _ in range(5):
        start = time.perf_counter()
        hashlib.sha256(_PROBE).digest()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def thread_ns():
    """CPU time of every thread of this process so far, in ns."""
    out = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            out[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            pass  # ended meanwhile
    return out


def machine_busy_ns():
    """CPU time that all processes of the machine used so far, and what the hypervisor took: (busy, stolen)."""
    n = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _wait, irq, softirq, steal = n[:8]
    return (user + nice + system + irq + softirq) * _TICK_NS, steal * _TICK_NS


class Block:
    """with Block() as b: ...; then wall_s, busy_ns by thread, foreign (cores that others used), stolen, faults, probe_ms."""

    def __enter__(self):
        self._probe = clock_probe_ms()
        self._machine, self._threads = machine_busy_ns(), thread_ns()
        self._faults = resource.getrusage(resource.RUSAGE_SELF)
        self._cpu, self._start = time.process_time_ns(), time.perf_counter()
        return self

    def __exit__(self, *_):
        self.wall_s = time.perf_counter() - self._start
        own = time.process_time_ns() - self._cpu
        now = thread_ns()
        self.busy_ns = {t: ns - self._threads.get(t, 0) for t, ns in now.items()}
        busy, stolen = machine_busy_ns()
        faults = resource.getrusage(resource.RUSAGE_SELF)
        wall_ns = max(1.0, 1e9 * self.wall_s)
        self.foreign = max(0.0, (busy - self._machine[0] - own) / wall_ns)
        self.stolen = max(0.0, (stolen - self._machine[1]) / wall_ns)
        self.major_faults = faults.ru_majflt - self._faults.ru_majflt
        self.minor_faults = faults.ru_minflt - self._faults.ru_minflt
        self.probe_ms = max(self._probe, clock_probe_ms())
