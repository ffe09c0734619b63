"""roofline.png and timeline.png of a result file."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

import result_file  # noqa: E402

COLORS = {"reference": "#999999", "planned": "#5b8ff9", "planned-fused": "#1a4fb4", "planned-fused-stored": "#61c0bf",
          "llama.cpp": "#d1495b"}  # fmt: skip


def _point(row, lane):
    """(multiply-adds per byte, GMAC/s) of a decode or prefill row; None where it says nothing."""
    macs, n_bytes, speed = row.get("macs_per_token"), row.get("bytes_per_token"), row.get("tok_s")
    if row["void"] or not (macs and n_bytes and speed):
        return None
    tokens = row["prompt_tokens"] if lane.startswith("prefill") else 1
    return macs * tokens / (n_bytes + row.get("kv_bytes_per_token", 0)), 1e-9 * macs * speed["median"]


def roofline(records, path):
    machine = [r for r in records if r["kind"] == "machine"][-1]
    rows = result_file.latest(records, "row", "model", "threads", "lane", "arm")
    counts = sorted({t for _, t, _, _ in rows})
    figure, axes = plt.subplots(1, max(1, len(counts)), figsize=(7.5 * max(1, len(counts)), 6), squeeze=False)
    for axis, threads in zip(axes[0], counts):
        x = np.logspace(-0.5, 4, 1000)
        read = machine["read_bandwidth_gb_s"].get(str(threads))
        peaks = [(n, (machine[k] or {}).get(str(threads))) for n, k in (("VNNI", "vnni_gmac_s"), ("AMX int8", "amx_int8_gmac_s"))]
        peaks = [(n, v) for n, v in peaks if v]
        ceiling = max((v for _, v in peaks), default=np.inf)
        if read:
            axis.plot(x, np.minimum(x * read, ceiling), color="black", lw=1.2, label=f"best plain read {read:.1f} GB/s")
        for name, value in peaks:
            axis.axhline(value, color="black", lw=0.8, ls="--")
            axis.text(x[-1], value, f"{name} {value:.0f} GMAC/s", ha="right", va="bottom", fontsize=8)
        seen = set()
        for (model, t, lane, arm), row in rows.items():
            point = _point(row, lane) if t == threads else None
            if point:
                axis.plot(*point, marker="^" if lane.startswith("prefill") else "o", ls="", ms=6, alpha=0.8,
                          color=COLORS.get(arm, "green"), label=None if arm in seen else arm)  # fmt: skip
                seen.add(arm)
                if arm == "planned-fused":
                    axis.annotate(model, point, fontsize=6, xytext=(4, -6), textcoords="offset points")
        axis.set(xscale="log", yscale="log", xlabel="multiply-adds per byte read", ylabel="GMAC/s",
                 title=f"{machine['cpu']}, {threads} threads, {machine['commit']}")  # fmt: skip
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(fontsize=8, loc="upper left", title="o decode, ^ prefill", title_fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


FAMILIES = {"matmul": "#1a4fb4", "attention": "#d1495b", "rope": "#edae49", "kv_store": "#e07a5f", "gated_act": "#61c0bf",
            "rms_norm": "#66a182", "quantize": "#8d6a9f", "add": "#b0a8b9"}  # fmt: skip


def _family(op):
    return next((family for family in FAMILIES if family in op), "other")


def timeline(records, path):
    """One token, operator after operator (added over the layers), to scale: a bar for each model and mode."""
    profiles = list(result_file.latest(records, "profile", "model", "threads", "mode").values())
    if not profiles:
        return False
    figure, axis = plt.subplots(figsize=(14, 1.6 + 0.75 * len(profiles)))
    longest = max(p["proxy"]["profile"]["call_ns"] / p["proxy"]["profile"]["tokens"] for p in profiles)
    for y, record in enumerate(reversed(profiles)):
        at, profile = 0.0, record["proxy"]["profile"]
        for op in profile["operators"]:
            width, family = 1e-6 * op["total_ns"] / profile["tokens"], _family(op["op"])
            axis.barh(y, width, left=at, height=0.7, color=FAMILIES.get(family, "#dddddd"), edgecolor="white", lw=0.4)
            if width > 0.05 * 1e-6 * longest:
                name = op["tensor"].removesuffix(".weight").removeprefix("blk.0.") or op["op"]
                axis.text(at + width / 2, y, f"{name}\n{op['gb_s']:.1f} GB/s", ha="center", va="center", fontsize=6)
            at += width
        between = 1e-6 * profile["call_ns"] / profile["tokens"] - at
        axis.barh(y, max(0.0, between), left=at, height=0.7, color="white", edgecolor="#999999", lw=0.4)
    for family, color in (*FAMILIES.items(), ("other", "#dddddd")):
        axis.barh(0, 0, color=color, label=family)
    axis.legend(ncols=len(FAMILIES) + 1, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axis.set_yticks(range(len(profiles)), [f"{r['model']} {r['threads']}t\n{r['mode']}" for r in reversed(profiles)], fontsize=7)
    axis.set(xlabel="ms of one token (means, in the order of execution; white: between operators)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True


def draw(records, folder):
    """Draws into a folder; the paths of what was drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    if any(r["kind"] == "row" for r in records):
        roofline(records, folder / "roofline.png")
        drawn.append(folder / "roofline.png")
    if timeline(records, folder / "timeline.png"):
        drawn.append(folder / "timeline.png")
    return drawn
