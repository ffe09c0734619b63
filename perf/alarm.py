"""Compares two result files of one machine and raises an alarm where our speed fell by 3 % or more.

    python perf/alarm.py OLD.jsonl NEW.jsonl [--raw] [--loss PERCENT]

Machines drift between two runs, so speeds are measured against the yardsticks of their own run: decode against the read
bandwidth of its lane, prefill against the peer's prefill, else the reference's. --raw compares tok/s as they are.
An alarm needs both the median and the best block of a row to have lost that much: on a busy machine one alone wavers.
Two void or missing rows compare nothing; a row that was proven before and is void or gone now is an alarm.
Status: 0 = no alarm, 1 = alarm, 2 = nothing to compare.
"""

import argparse
import sys

import result_file

LOSS_PERCENT = 3.0
YARDSTICKS = ("llama.cpp", "reference")


def proven(row):
    return row is not None and not row["void"] and (row.get("tok_s") or row.get("passes"))


def yardstick(rows, key, row, raw):
    """(what, {median, best} by which the row's speed is divided)."""
    model, threads, lane, arm = key
    if raw:
        return "tok/s", {"median": 1.0, "best": 1.0}
    if lane == "passes":
        return "passes", {"median": 1.0, "best": 1.0}
    if not lane.startswith("prefill-"):
        return ("read bandwidth", dict.fromkeys(("median", "best"), row["read_gb_s"])) if row.get("read_gb_s") else None
    for other in YARDSTICKS:
        peer = rows.get((model, threads, lane, other))
        if other != arm and proven(peer) and peer.get("tok_s"):
            return other, {"median": peer["tok_s"]["median"], "best": peer["tok_s"]["max"]}
    return "tok/s", {"median": 1.0, "best": 1.0}


def speed(row):
    """Median and best speed of a row; of a passes row the inverse of what 8 tokens cost."""
    if row.get("passes"):
        s = row["passes"]["8"]
        return {"median": 1 / s["median"], "best": 1 / s["min"]}
    return {"median": row["tok_s"]["median"], "best": row["tok_s"]["max"]}


def compare(old_records, new_records, loss_percent=LOSS_PERCENT, raw=False):
    """(alarms, compared): lists of text. Only our own arms are held to it."""
    old = result_file.latest(old_records, "row", "model", "threads", "lane", "arm")
    new = result_file.latest(new_records, "row", "model", "threads", "lane", "arm")
    measured_now = {key[:3] for key in new}
    alarms, compared = [], []
    for key, before in old.items():
        if key[3] == "llama.cpp" or not proven(before) or key[:3] not in measured_now:
            continue
        name = f"{key[0]} {key[1]}t {key[2]} {key[3]}"
        after = new.get(key)
        if not proven(after):
            why = "; ".join(after["void"]) or after.get("why", "nothing measured") if after else "it is gone"
            alarms.append(f"{name}: was measured, is not any more: {why}")
            continue
        sticks = yardstick(old, key, before, raw), yardstick(new, key, after, raw)
        if None in sticks or sticks[0][0] != sticks[1][0]:
            continue
        a, b = speed(before), speed(after)
        losses = {
            k: 100 * (1 - (b[k] / sticks[1][1][k]) / (a[k] / sticks[0][1][k])) for k in ("median", "best")
        }
        text = f"{name}: {-losses['median']:+.1f} % (best {-losses['best']:+.1f} %) against {sticks[0][0]}"
        compared.append(text)
        if min(losses.values()) >= loss_percent:
            alarms.append(text)
        if before.get("checksum") != after.get("checksum") and before.get("trace") and key[2] != "passes":
            compared.append(f"{name}: other output than before ({before['checksum']}, {after['checksum']})")
    return alarms, compared


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("old")
    p.add_argument("new")
    p.add_argument("--raw", action="store_true")
    p.add_argument("--loss", type=float, default=LOSS_PERCENT)
    o = p.parse_args()
    records = [result_file.read(f) for f in (o.old, o.new)]
    machines = [result_file.machine_name([r for r in rs if r["kind"] == "machine"][-1]) for rs in records]
    if machines[0] != machines[1]:
        print(f"alarm: different machines: {machines[0]}, {machines[1]}", file=sys.stderr)
        return 2
    alarms, compared = compare(*records, o.loss, o.raw)
    print("\n".join(compared))
    for text in alarms:
        print(f"ALARM {text}")
    if not compared and not alarms:
        print("alarm: no row is in both files", file=sys.stderr)
        return 2
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
