"""Reads a result file, prints its tables, and draws roofline.png and timeline.png beside it.

    python perf/report.py [RESULTS.jsonl] [--no-plots]      default: the newest file of perf/results
"""

import argparse
import sys
from pathlib import Path

import bars
import result_file

NOISY_CORES = 0.25  # that others used while a row was measured
PASSES = ("2", "4", "8", "16")


def table(heads, lines):
    """Columns that line up; numbers to the right, texts to the left."""
    cells = [heads] + [["" if c is None else str(c) for c in line] for line in lines]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    right = [all(not c[:1].isalpha() or c in ("-",) for c in col) for col in zip(*cells[1:])] if lines else [True] * len(heads)
    return "\n".join(
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right)).rstrip() for row in cells
    )


def number(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def span(s, digits=1):
    return "-" if not s else f"{s['median']:.{digits}f} [{s['min']:.{digits}f} {s['max']:.{digits}f}]"


def index(records):
    rows = result_file.latest(records, "row", "model", "threads", "lane", "arm")
    loads = result_file.latest(records, "load", "model", "arm")
    return rows, loads


def amx_ran(row):
    return any("amx" in k for k in row.get("ran", {}).get("kernels", {}))


def state(row):
    """The verdict, or why it does not count."""
    if row["void"]:
        return "VOID: " + row["void"][0]
    text = row["verdict"]
    if row["verdict"] == "not comparable":
        text += f" ({row.get('why', '')})"
    if row["verdict"] == "drift":
        text += f" at {row['first_difference']}, peer's margin {number(row['peer_top2_margin'], 4)}"
    if row.get("same_bits_as_reference") is False:
        text += "; BITS DIFFER FROM REFERENCE"
    foreign = row.get("foreign_cores")
    if foreign and foreign["median"] > NOISY_CORES:
        text += f"; noisy, others used {foreign['median']:.1f} cores"
    return text


def speed_ratio(rows, key, other):
    a, b = rows.get(key), rows.get((*key[:3], other))
    if not a or not b or a["void"] or b["void"] or not a.get("tok_s") or not b.get("tok_s"):
        return None
    return a["tok_s"]["median"] / b["tok_s"]["median"]


def decode_table(rows):
    lines = []
    for key, row in rows.items():
        model, threads, lane, arm = key
        if lane == "generation" or lane.startswith("context-"):
            lines.append([
                model, threads, f"{row.get('context_start', '')}-{row.get('context_end', '')}", arm, span(row.get("tok_s")),
                number(1e-9 * row.get("bytes_per_token", 0), 3), number(row.get("gb_s")), number(row.get("read_gb_s")),
                number(100 * row["of_read"], 1) if row.get("of_read") else "-", number(speed_ratio(rows, key, bars.PEER)),
                number(speed_ratio(rows, key, bars.REFERENCE)), row.get("checksum", "-"), state(row),
            ])  # fmt: skip
    heads = ["model", "T", "context", "arm", "tok/s [min max]", "GB/token", "GB/s", "read GB/s", "% read", "x peer", "x ref",
             "checksum", "verdict"]  # fmt: skip
    return table(heads, lines)


def prefill_table(rows):
    lines = []
    for key, row in rows.items():
        model, threads, lane, arm = key
        if lane.startswith("prefill-") or (lane.startswith("context-") and row.get("prefill_tok_s")):
            n = row.get("prompt_tokens", "")
            rate = row.get("prefill_tok_s")
            gmac = rate["median"] * row["macs_per_token"] * 1e-9 if rate and row.get("macs_per_token") else None
            ratios = [number(speed_ratio(rows, key, o)) for o in (bars.PEER, bars.REFERENCE)]
            ratios = ratios if lane.startswith("prefill-") else ["-", "-"]
            lines.append([model, threads, n, arm, span(rate), number(gmac, 0), *ratios, state(row)])
    return table(["model", "T", "tokens", "arm", "tok/s [min max]", "GMAC/s", "x peer", "x ref", "verdict"], lines)


def passes_table(rows):
    lines = []
    for (model, threads, lane, arm), row in rows.items():
        if lane == "passes" and row.get("passes"):
            ms = row["pass_ms"]
            lines.append([model, threads, arm, span(ms["1"], 2), *(number(row["passes"][n]["median"]) for n in PASSES), state(row)])
    return table(["model", "T", "arm", "1 token, ms [min max]", *(f"{n} tokens" for n in PASSES), "verdict"], lines)


def load_table(loads):
    lines = []
    for (model, arm), r in loads.items():
        w, c = r["warm"], r["cold"]
        needed = r.get("needed_bytes")
        lines.append([
            model, arm, number(1e3 * w["open_s"], 1), number(1e3 * w["session_s"], 0), number(r.get("repack_gb_s_per_core")),
            number(1e3 * w["first_token_s"], 0), f"{c['major_faults']}" + ("" if c["cached_share_before"] < 0.05 else " (not cold)"),
            number(1e-6 * w["peak_rss_bytes"], 0), number(1e-6 * w["resident_bytes"], 0),
            number(1e-6 * needed, 0) if needed else "-", "VOID: " + w["void"][0] if w["void"] else "",
        ])  # fmt: skip
    heads = ["model", "arm", "open ms", "session ms", "repack GB/s/core", "first token ms", "cold major faults", "peak MB", "resident MB",
             "weights+KV+scratch MB", ""]  # fmt: skip
    return table(heads, lines)


def allocation_table(records):
    found = result_file.latest(records, "allocations", "model", "arm")
    lines = [[m, a, r["allocations"], r["tokens"], "; ".join(r["void"])] for (m, a), r in found.items()]
    return table(["model", "arm", "allocations", "in tokens", "void"], lines)


def operator_table(records):
    """The reason for the gain: each operator of the token, reference against planned-fused."""
    profiles = result_file.latest(records, "profile", "model", "threads", "mode")
    texts = []
    for model, threads in dict.fromkeys((m, t) for m, t, _ in profiles):
        both = [profiles.get((model, threads, mode)) for mode in (bars.REFERENCE, bars.DEFAULT)]
        if None in both:
            continue
        lines = []
        for record in both:
            proxy = record["proxy"]
            for op in proxy["profile"]["operators"]:
                lines.append([record["mode"], op["op"], op["fusions"], op["steps"], number(1e-3 * op["median_ns"], 1),
                              number(op["gb_s"]), number(op["share"], 1), op["kernel"]])  # fmt: skip
            lines.append([record["mode"], "between", "", "", "", "", number(proxy["profile"]["between"], 1), ""])
        heads = ["mode", "operations", "fusions", "steps", "us a token", "GB/s", "% of token", "kernel"]
        texts.append(f"{model}, {threads} threads\n{table(heads, lines)}")
    return "\n\n".join(texts)


def bar_table(results):
    lines = []
    for r in results:
        mark = "not measured" if r.met is None else ("met" if r.met else "MISSED")
        relation = ">=" if r.at_least else "<="
        lines.append([r.name, r.model, r.threads, number(r.value), f"{relation} {r.bar:g}", mark, r.note])
    return table(["bar", "model", "T", "measured", "wanted", "", ""], lines)


def head(records):
    machine = [r for r in records if r["kind"] == "machine"][-1]
    peers = [r for r in records if r["kind"] == "peer"]
    quota = f", quota {machine['quota_cores']} cores" if machine["quota_cores"] else ""
    lines = [
        f"{machine['cpu']} (family {machine['cpu_family']}, model {machine['cpu_model']}), {machine['cores_online']} cores, "
        f"{machine['cores_allowed']} allowed{quota}, governor {machine['governor'] or 'unknown'}, huge pages {machine['huge_pages']}",
        f"read GB/s by threads {machine['read_bandwidth_gb_s']}; VNNI GMAC/s {machine['vnni_gmac_s']}; AMX int8 GMAC/s "
        f"{machine['amx_int8_gmac_s']}",
        f"commit {machine['commit']}, run {machine['run']}",
    ]
    if peers and peers[-1]["name"]:
        lines.append(f"peer {peers[-1]['name']}: {peers[-1]['package']}, {peers[-1]['build_flags']}")
    else:
        lines.append(f"peer: none ({peers[-1]['why'] if peers else 'not asked for'})")
    if any(r.get("quick") for r in records):
        lines.append("QUICK RUN: a test of the harness, not a result")
    return "\n".join(lines)


def text(records):
    rows, loads = index(records)
    parts = [head(records)]
    sections = [
        ("Decode, one token a pass", decode_table(rows)), ("Prefill", prefill_table(rows)),
        ("Several tokens in a pass, in passes of one token", passes_table(rows)), ("Load", load_table(loads)),
        ("Allocations while decoding", allocation_table(records)), ("Operators", operator_table(records)),
        ("Bars", bar_table(bars.judge(rows, loads, amx_ran))),
    ]  # fmt: skip
    parts += [f"{title}\n{body}" for title, body in sections if body.count("\n")]
    missing = result_file.latest(records, "missing", "model")
    parts += [f"{model} was not measured: {r['why']}" for (model,), r in missing.items()]
    return "\n\n".join(parts)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("results", nargs="?")
    p.add_argument("--no-plots", action="store_true")
    o = p.parse_args()
    files = sorted(result_file.FOLDER.glob("*.jsonl"), key=lambda f: f.stat().st_mtime)
    if not o.results and not files:
        sys.exit("report: no result file; run perf/run.sh")
    path = Path(o.results) if o.results else files[-1]
    records = result_file.read(path)
    print(text(records))
    if not o.no_plots:
        import plots

        for picture in plots.draw(records, path.with_suffix("")):
            print(f"\n{picture}", end="")
        print()


if __name__ == "__main__":
    main()
