"""The alarm on lost speed (case 40 d) and the bars of the report: planted losses are found, and nothing else."""

import copy
import json
import subprocess
import sys

import pytest

import engine_ctypes

PERF = engine_ctypes.ROOT / "perf"
sys.path.insert(0, str(PERF))

import alarm  # noqa: E402
import bars  # noqa: E402
import report  # noqa: E402
import result_file  # noqa: E402

MACHINE = {
    "kind": "machine", "cpu": "Some CPU", "cpu_family": 6, "cpu_model": 1, "cores_online": 2, "cores_allowed": 2, "commit": "abc",
    "quota_cores": None, "governor": None, "huge_pages": "x", "run": "now", "read_bandwidth_gb_s": {"1": 16, "2": 32},
    "vnni_gmac_s": {"1": 400, "2": 800}, "amx_int8_gmac_s": None,
}  # fmt: skip


def spread(value):
    return {"min": 0.97 * value, "median": value, "max": 1.02 * value, "n": 7}


def row(lane, arm, speed, **more):
    out = {
        "kind": "row", "model": "llama32-1b.Q4_K_M", "threads": 2, "lane": lane, "arm": arm, "void": [], "verdict": "exact",
        "tok_s": spread(speed), "read_gb_s": 32.0, "checksum": "0", "prompt_tokens": 32, "of_read": speed * 0.8 / 32,
        "macs_per_token": 1240000000, "bytes_per_token": 800000000, "gb_s": speed * 0.8, "ran": {},
    }  # fmt: skip
    if lane == "passes":
        del out["tok_s"]
        out["passes"] = {n: spread(v) for n, v in (("1", 1.0), ("2", 1.1), ("4", 1.2), ("8", speed), ("16", 1.5))}
        out["pass_ms"] = {"1": spread(26.0)}
    return {**out, **more}


def records():
    return [
        MACHINE,
        row("generation", "reference", 12.0), row("generation", "planned-fused", 38.0), row("generation", "llama.cpp", 20.3),
        row("prefill-512", "reference", 60.0), row("prefill-512", "planned-fused", 400.0), row("prefill-512", "llama.cpp", 226.0),
        row("passes", "planned-fused", 1.3),
    ]  # fmt: skip


def slowed(factor, arms=("reference", "planned-fused"), lanes=("generation", "prefill-512", "passes")):
    """The same run with these arms slower by a factor."""
    out = copy.deepcopy(records())
    for r in out[1:]:
        if r["arm"] in arms and r["lane"] in lanes:
            if "tok_s" in r:
                r["tok_s"] = {k: v if k == "n" else v * factor for k, v in r["tok_s"].items()}
            else:
                r["passes"]["8"] = {k: v if k == "n" else v / factor for k, v in r["passes"]["8"].items()}
    return out


def names(alarms):
    return sorted(" ".join(text.split(":")[0].split()[2:]) for text in alarms)


def test_equal_runs_raise_nothing():
    alarms, compared = alarm.compare(records(), records())
    assert alarms == [] and len(compared) == 5


@pytest.mark.parametrize("lane", ["generation", "prefill-512", "passes"])
def test_a_planted_loss_of_5_percent_is_found(lane):
    alarms, _ = alarm.compare(records(), slowed(0.95, ("planned-fused",), (lane,)))
    assert names(alarms) == [f"{lane} planned-fused"]


def test_a_loss_of_2_percent_and_a_gain_are_none():
    assert alarm.compare(records(), slowed(0.98))[0] == []
    assert alarm.compare(records(), slowed(1.2))[0] == []


def test_a_slower_machine_is_no_slower_engine():
    slow = slowed(0.8, ("reference", "planned-fused", "llama.cpp"), ("generation", "prefill-512"))
    for r in slow[1:]:
        r["read_gb_s"] *= 0.8
    assert alarm.compare(records(), slow)[0] == []
    assert len(alarm.compare(records(), slow, raw=True)[0]) == 4


def test_a_slower_engine_on_a_faster_machine_is_found():
    fast = slowed(1.0)
    for r in fast[1:]:
        r["read_gb_s"] *= 1.1
    assert "generation planned-fused" in names(alarm.compare(records(), fast)[0])


def test_one_wavering_block_is_none():
    new = records()
    new[2]["tok_s"]["median"] *= 0.95  # its best block is as good as ever
    assert alarm.compare(records(), new)[0] == []


def test_a_row_that_is_void_or_gone_raises_it():
    void, gone = records(), records()
    void[2]["void"] = ["asked for mode planned-fused, ran reference"]
    del gone[2]
    assert names(alarm.compare(records(), void)[0]) == ["generation planned-fused"]
    assert names(alarm.compare(records(), gone)[0]) == ["generation planned-fused"]


def test_the_program(tmp_path):
    old, same, slow, other = (tmp_path / f"{n}.jsonl" for n in ("old", "same", "slow", "other"))
    elsewhere = [{**MACHINE, "cpu": "Another CPU"}, *records()[1:]]
    for path, rs in ((old, records()), (same, records()), (slow, slowed(0.95)), (other, elsewhere)):
        path.write_text("\n".join(map(json.dumps, rs)) + "\n")
    codes = []
    for new in (same, slow, other):
        done = subprocess.run([sys.executable, "-B", str(PERF / "alarm.py"), str(old), str(new)], capture_output=True, text=True)
        codes.append(done.returncode)
        assert (done.stdout.count("ALARM") == 5) == (new == slow)
    assert codes == [0, 1, 2]


def judged(rs):
    return {r.name: r for r in bars.judge(*report.index(rs), report.amx_ran)}


def test_bars_are_met_and_missed():
    good = judged(records())
    assert {name for name, r in good.items() if r.met} == {
        "decode, of best read", "decode, times llama.cpp", "decode, times reference", "prefill 512, times llama.cpp", "8 tokens, in passes",
    }  # fmt: skip
    slow = slowed(0.8, ("planned-fused",))
    slow[2]["of_read"] *= 0.8
    assert not any(r.met for r in judged(slow).values())
    assert report.text(slow).count("MISSED") == 5


def test_a_void_row_meets_no_bar():
    void = records()
    void[2]["void"] = ["pinned"]
    assert judged(void)["decode, of best read"].met is None
    assert "VOID: pinned" in report.text(void)


def test_with_amx_prefill_has_a_higher_bar():
    rs = records()
    rs[5]["ran"] = {"kernels": {"matmul_q4_k_q8x256__cpu_amx": 1}}
    result = judged(rs)["prefill 512, times llama.cpp"]
    assert result.bar == 4.0 and not result.met


def test_a_torn_line_is_left_out(tmp_path):
    path = tmp_path / "torn.jsonl"
    path.write_text(json.dumps(MACHINE) + '\n{"kind": "row", "mod')
    assert len(result_file.read(path)) == 1
