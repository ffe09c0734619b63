"""One lane: the same ids through all arms, block after block in turn (A B C A B C ...), every block proven.

Kinds of lanes
  generation  a fresh context in every block: a prompt, then n tokens one by one
  prefill     a fresh context in every block: n tokens at once
  passes      a fresh context in every block: a prompt, then calls of 1, 2, 4, 8, 16 tokens with all their logits
  context     one context for the lane, filled before; every block decodes n tokens from there and goes back
"""

import hashlib
import statistics
import time
from dataclasses import dataclass

import numpy as np

import honesty
from block_probe import Block

PASS_TOKENS = (1, 2, 4, 8, 16)
PASS_CALLS = 3  # of each size in a block, after one that warms up
BETWEEN_BLOCKS_S = 0.03  # until spinning threads of the arm before have gone to sleep


@dataclass
class Lane:
    name: str
    kind: str
    prompt: int  # tokens before what is timed one by one; of a prefill lane, its tokens
    tokens: int = 0  # generated

    def positions(self):
        extra = sum(PASS_TOKENS) * (PASS_CALLS + 1) if self.kind == "passes" else self.tokens
        return self.prompt + extra

    def n_ctx(self):
        return -(-self.positions() // 256) * 256


class Measured:
    """What one arm did in a lane."""

    def __init__(self, arm):
        self.arm = arm
        self.void = []
        self.prefill_s, self.decode_s, self.pass_s = [], [], {n: [] for n in PASS_TOKENS}
        self.choices, self.margins, self.checksum = [], [], None
        self.probes, self.foreign, self.stolen, self.major_faults = [], [], [], 0
        self.ran, self.bytes_per_token = {}, 0
        self.busy, self.asked_threads = [], 0
        self.run = None

    def blame(self, reasons):
        self.void += [r for r in reasons if r not in self.void]


def top2_margin(row):
    two = np.partition(row, -2)[-2:]
    return float(two[1] - two[0])


class LaneRun:
    """Runs a lane. ids: at least lane.prompt of them; forced ids of the decode come from the first arm's own choice."""

    def __init__(self, lane, arms, ids, contexts, cores, say=lambda text: None):
        self.lane, self.contexts, self.cores, self.say = lane, contexts, cores, say
        self.prompt = [int(i) for i in ids[: lane.prompt]]
        self.more = [int(i) for i in ids[: sum(PASS_TOKENS)]]
        self.forced = None
        self.arms = [Measured(arm) for arm in arms]
        self.probes = []

    def measure(self, repeats):
        """Warm-up of each arm, then `repeats` blocks of each in turn."""
        try:
            for arm in self.arms:
                self._block(arm, warm_up=True)
            for number in range(repeats):
                for arm in self.arms:
                    time.sleep(BETWEEN_BLOCKS_S)
                    self._block(arm, warm_up=False)
                    self.say(f"block {number + 1}/{repeats} {arm.arm.name}")
        finally:
            for arm in self.arms:
                if arm.run:
                    arm.run.close()
        lane_wide = honesty.steady(self.probes)
        for arm in self.arms:
            arm.blame(lane_wide)
            arm.blame(honesty.same_output(arm.choices))
            if arm.busy:
                arm.blame(honesty.threads(arm.busy, arm.asked_threads))
        return self.arms

    # -- a block
    def _block(self, arm, warm_up):
        kept = self.lane.kind == "context"
        run = arm.run
        if run is None:
            run = arm.arm.start(self.lane.n_ctx())
            arm.blame(self.contexts.fresh(run))
            if kept:
                arm.run = run
        try:
            start = run.evaluations()
            if not kept or start == 0:
                self._prefill(arm, run, warm_up)
                arm.first_choice = arm.last_choice
            n_tokens = run.evaluations()
            if self.lane.kind == "passes":
                self._passes(arm, run, warm_up)
                n_tokens += sum(PASS_TOKENS) * (PASS_CALLS + 1)
            elif self.lane.tokens:
                arm.last_choice = arm.first_choice
                self._decode(arm, run, warm_up)
                n_tokens += self.lane.tokens
            arm.blame(honesty.evaluations(run, n_tokens, self.lane.positions()))
            arm.blame(honesty.affinity(honesty.thread_affinities(), self.cores))
            why, arm.ran = arm.arm.prove(run)
            arm.blame(why)
            arm.bytes_per_token = arm.arm.bytes_per_token(run)
            if kept:
                run.truncate(self.lane.prompt)
        finally:
            if not kept:
                run.close()

    def _prefill(self, arm, run, warm_up):
        with Block() as block:
            row = run.evaluate(self.prompt)
            arm.last_choice = int(np.argmax(row))
        timed = self.lane.kind == "prefill"
        if not warm_up or self.lane.kind == "context":
            arm.prefill_s.append(block.wall_s)
        if timed:
            arm.choices.append((arm.last_choice,))
            self._account(arm, block, warm_up, tokens_per_call=len(self.prompt))
        if warm_up:
            arm.digest = hashlib.sha256(np.ascontiguousarray(row).tobytes())
            arm.margins = [top2_margin(row)]
            arm.checksum = arm.digest.hexdigest()[:16]

    def _decode(self, arm, run, warm_up):
        greedy = self.forced is None
        forced = [] if greedy else self.forced
        choices, before = [arm.last_choice], run.counters()
        with Block() as block:
            for i in range(self.lane.tokens):
                if greedy:
                    forced.append(choices[-1])
                row = run.evaluate(forced[i : i + 1])
                choices.append(int(np.argmax(row)))
                if warm_up:
                    arm.digest.update(np.ascontiguousarray(row).tobytes())
                    arm.margins.append(top2_margin(row))
        self.forced = forced
        planned = arm.arm.planned_per_token(run)
        if planned is not None:
            ran = {k: n - before.get(k, 0) for k, n in run.counters().items() if n != before.get(k, 0)}
            arm.blame(honesty.route(planned, ran, self.lane.tokens))
        arm.choices.append(tuple(choices))
        if warm_up:
            arm.checksum = arm.digest.hexdigest()[:16]
        else:
            arm.decode_s.append(block.wall_s)
        self._account(arm, block, warm_up, tokens_per_call=1)

    def _passes(self, arm, run, warm_up):
        chosen = []
        with Block() as block:
            for n in PASS_TOKENS:
                seconds = []
                for call in range(PASS_CALLS + 1):
                    start = time.perf_counter()
                    rows = run.evaluate_all(self.more[:n])
                    seconds.append(time.perf_counter() - start)
                    chosen.append(int(np.argmax(rows[-1])))
                if not warm_up:
                    arm.pass_s[n].append(statistics.median(seconds[1:]))
        arm.choices.append(tuple(chosen))
        self._account(arm, block, warm_up, tokens_per_call=0)

    def _account(self, arm, block, warm_up, tokens_per_call):
        """Takes over what the block cost; tokens_per_call 0 = mixed."""
        if warm_up:
            return
        if tokens_per_call:
            arm.busy.append(block.busy_ns)
            arm.asked_threads = arm.arm.working_threads(tokens_per_call)
        arm.probes.append(block.probe_ms)
        self.probes.append((arm.arm.name, block.probe_ms))
        arm.foreign.append(block.foreign)
        arm.stolen.append(block.stolen)
        arm.major_faults += block.major_faults


def compare(own, peer):
    """The verdict of an arm against the peer: exact; drift with the first position that differs and the peer's top-2
    margin there; not comparable with the reason. own, peer: Measured."""
    if peer is None or not peer.choices:
        return {"verdict": "not comparable", "why": "no peer in this lane"}
    if own.void or peer.void:
        who = own.arm.name if own.void else "the peer"
        return {"verdict": "not comparable", "why": f"{who} is void"}
    mine, theirs = own.choices[0], peer.choices[0]
    if len(mine) != len(theirs):
        return {"verdict": "not comparable", "why": "different numbers of tokens"}
    for i, (a, b) in enumerate(zip(mine, theirs)):
        if a != b:
            margin = round(peer.margins[i], 5) if i < len(peer.margins) else None
            return {"verdict": "drift", "first_difference": i, "peer_top2_margin": margin}
    return {"verdict": "exact"}
