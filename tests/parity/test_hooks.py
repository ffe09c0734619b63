"""Gates C, C', D, H and I of hooks: observing changes no bit, every mode fires the same events with the same
bits, an intervention acts the same everywhere, only the hooked layer is de-fused, and each site is what its
name says (float64). Cases 38 and 39.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import engine_ctypes
import engine_hooks
import gates
import models
import ref_forward
import toys
from engine_hooks import HOOK_FAILED, POST, RING, Hooks
from test_modes import bits, first_difference

MODES = engine_ctypes.MODES
TOY_NAMES = ["llama_untied", "llama_bias", "gemma3_default", "gemma3_scaled"]
N_IDS, N_CTX = 19, 48
TEXT = "The river rose slowly through the night, and by morning the lower fields"


@pytest.fixture(scope="module")
def opened(engine, toy_path, real_model):
    """Function: name of a toy or of a real model -> (model, N_IDS ids)."""
    made = {}

    def get(name):
        if name in engine_models():
            model = real_model(name)
            return model, (model.tokenize(TEXT) * 2)[:N_IDS]
        if name not in made:
            made[name] = engine.Model(toy_path(name))
        return made[name], [int(i) for i in toys.token_ids(toys.TOYS[name], N_IDS)]

    yield get
    for model in made.values():
        model.close()


def engine_models():
    return list(models.MODELS)


ALL = TOY_NAMES + ["smollm2", "gemma3"]


def session_of(model, **options):
    return model.session(**{"n_ctx": N_CTX, "threads": 2, "chunk": 7, **options})


def plain(model, ids, **options):
    with session_of(model, **options) as session:
        return session.decode_all(ids)


def test_structs_follow_the_header():
    """The ctypes structs against tests/abi/layout.txt."""
    wanted = {}
    for line in (engine_ctypes.ROOT / "tests" / "abi" / "layout.txt").read_text().splitlines():
        if not line.startswith("#"):
            group, kind, name, a, b = line.split()
            wanted.setdefault(group, {})[kind, name] = int(a), int(b)
    for struct, name in [
        (engine_ctypes.SessionParams, "engine_session_params"),
        (engine_ctypes.SessionStats, "engine_session_stats"),
        (engine_ctypes.ProfileEntry, "engine_profile_entry"),
        (engine_hooks.SiteInfo, "engine_hook_site_info"),
        (engine_hooks.CaptureRecord, "engine_capture_record"),
        (engine_hooks.HookEvent, "engine_hook_event"),
        (engine_hooks.HookParams, "engine_hook_params"),
        (engine_hooks.HookStats, "engine_hook_stats"),
    ]:
        ours = {("size", "-"): (engine_ctypes.C.sizeof(struct), 8)}
        for field, *_ in struct._fields_:
            at = getattr(struct, field)
            ours["field", field] = at.offset, at.size
        assert ours == wanted[name], name


# -- gate C: observing -------------------------------------------------------------------------------------
def register_observer(hooks, kind, site, n_rows):
    """A hook in every layer that has the site, of a kind that must not change a bit."""
    if kind == "inactive":
        return hooks.add("zero", site, select="list", positions=[N_CTX - 1])
    if kind == "capture":
        return hooks.capture(site, n_rows).hook
    if kind == "read":
        return hooks.read(site, lambda event, rows: rows.fill(7.0))  # a copy: no effect
    return hooks.write(site, lambda event, rows: None)


@pytest.mark.parametrize("kind", ["inactive", "capture", "read", "write_back"])
@pytest.mark.parametrize("name", ALL)
def test_observing_changes_no_bit(name, kind, opened):
    model, ids = opened(name)
    want = plain(model, ids, mode="reference", threads=1, chunk=1)
    for mode in MODES:
        with session_of(model, mode=mode) as session:
            hooks = Hooks(session)
            sites = [
                s
                for s, info in hooks.sites.items()
                if kind in ("capture", "read") or info.writable
            ]
            ids_of = {
                s: register_observer(hooks, kind, s, N_IDS * hooks.sites[s].n_layers)
                for s in sites
            }
            d = first_difference(session.decode_all(ids), want)
            assert not d, f"{mode}, all sites, {kind}: {d}"
            for site, hook in ids_of.items():
                stats, n = hooks.stats(hook), 0 if kind == "inactive" else len(ids)
                n *= hooks.sites[site].n_layers
                assert stats.positions == n and stats.prefill_positions == n, (mode, site)
                assert stats.writes == (n if kind == "write_back" else 0), (mode, site)
                assert stats.rows_captured == (n if kind == "capture" else 0), (mode, site)
                assert stats.rows_dropped == 0


@pytest.mark.parametrize("name", ["llama_untied", "gemma3_default", "smollm2", "gemma3"])
def test_observing_one_site_changes_no_bit(name, opened):
    """Each site alone, so that only its own fusions are off: in the fused mode, in one layer."""
    model, ids = opened(name)
    want = plain(model, ids, mode="reference", threads=1, chunk=1)
    with session_of(model) as session:
        hooks = Hooks(session)
        assert not first_difference(session.decode_all(ids), want)
        for site, info in hooks.sites.items():
            layers = [min(1, info.n_layers - 1)] if info.per_layer else None
            hook = hooks.capture(site, len(ids), layers=layers).hook
            session.truncate(0)
            d = first_difference(session.decode_all(ids), want)
            assert not d, f"{site}: {d}"
            assert hooks.stats(hook).rows_captured == len(ids), site
            hooks.remove(hook)
        session.truncate(0)
        assert not first_difference(session.decode_all(ids), want)


# -- gates C and H: the same events everywhere ---------------------------------------------------------------
def events(model, ids, n_decoded, **options):
    """(site, layer, position, token, generated, values) of every row in the order of firing."""
    seen = []
    with session_of(model, **options) as session:
        hooks = Hooks(session)

        def note(event, rows):
            for i in range(event.n_rows):
                seen.append(
                    (
                        event.site,
                        event.layer,
                        event.positions[i],
                        event.token_ids[i],
                        event.generated,
                        rows[i].tobytes(),
                    )
                )

        for site in hooks.sites:
            hooks.read(site, note)
        session.decode_all(ids[: len(ids) - n_decoded])
        for i in ids[len(ids) - n_decoded :]:
            session.decode([i])
        assert hooks.raised is None
        n_layers = sum(info.n_layers for info in hooks.sites.values())
    assert len(seen) == n_layers * len(ids)
    return seen


@pytest.mark.parametrize("name", ["llama_untied", "llama_bias", "gemma3_default", "smollm2"])
def test_events_are_the_same_in_every_mode(name, opened):
    model, ids = opened(name)
    n_decoded = 4
    by_chunk = {}
    for chunk in (1, 7, 0):
        want = events(model, ids, n_decoded, mode="reference", threads=1, chunk=chunk)
        by_chunk[chunk] = want
        for mode, threads in (("planned", 2), ("planned-fused", 1), ("planned-fused", 3)):
            got = events(model, ids, n_decoded, mode=mode, threads=threads, chunk=chunk)
            for i, (a, b) in enumerate(zip(got, want)):
                assert a[:5] == b[:5], f"{mode}, chunk {chunk}, event {i}: {a[:5]}, not {b[:5]}"
                assert a[5] == b[5], f"{mode}, chunk {chunk}, event {i} {a[:5]}: other values"
    # chunks change the order of rows, and nothing else
    for chunk in (7, 0):
        assert sorted(by_chunk[chunk]) == sorted(by_chunk[1]), chunk
    assert {e[4] for e in want if e[2] < len(ids) - n_decoded} == {0}
    assert {e[4] for e in want if e[2] >= len(ids) - n_decoded} == {1}


# -- gate C': intervening ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["llama_untied", "gemma3_scaled", "smollm2", "gemma3"])
def test_intervention_is_the_same_in_every_mode(name, opened):
    model, ids = opened(name)
    runs = [
        ("reference", 0, 1),
        ("planned", 7, 1),
        ("planned-fused", 1, 2),
        ("planned-fused", 7, 3),
        ("planned-fused", 0, 1),
        ("reference", 1, 2),
        ("planned", 0, 2),
    ]
    if name in engine_models():
        runs = runs[:4]
    if name == "gemma3":  # its vocabulary makes each row of logits dear
        ids = ids[:10]
    clean = plain(model, ids)
    n_decoded = 3
    rng = np.random.default_rng(5)
    by_site = {}
    for mode, chunk, threads in runs:
        with session_of(model, mode=mode, chunk=chunk, threads=threads) as session:
            hooks = Hooks(session)
            for site, info in hooks.sites.items():
                if not info.writable:
                    continue
                layers = [min(1, info.n_layers - 1)] if info.per_layer else None
                if site not in by_site:
                    by_site[site] = rng.normal(size=hooks.width(site)).astype(np.float32), None
                vector, want = by_site[site]
                hook = hooks.add("add", site, layers=layers, values=vector, alpha=0.25)
                session.truncate(0)
                rows = [session.decode_all(ids[:-n_decoded])]
                rows += [session.decode([i])[None] for i in ids[-n_decoded:]]
                got = np.concatenate(rows)
                if want is None:
                    by_site[site] = vector, got
                    # (a query alone with its own key cannot tell how well they match)
                    changed = (bits(got) != bits(clean)).any(axis=1)
                    assert changed[1 if site[0] in "qk" else 0 :].all(), site
                else:
                    d = first_difference(got, want)
                    assert not d, f"{mode}, chunk {chunk}, {site}: {d}"
                stats = hooks.stats(hook)
                counts = stats.writes, stats.prefill_positions, stats.decode_positions
                assert counts == (len(ids), len(ids) - n_decoded, n_decoded), (mode, site)
                hooks.remove(hook)
            session.truncate(0)
            assert not first_difference(session.decode_all(ids), clean), f"{mode}: not removed"


# -- only the hooked layer is de-fused -------------------------------------------------------------------------
def layers_of(plan, form):
    return [
        {f["id"]: f["on"] for f in layer["fusions"]} for layer in plan[form]["layers"]
    ]


def step_fusions(plan, form="decode"):
    """Fusion -> steps of the form that realise it: what one call must count."""
    counts = dict.fromkeys(engine_ctypes.FUSION, 0)
    form = plan[form]
    steps = form["preamble"] + form["final"]["steps"]
    for layer in form["layers"]:
        steps = steps + layer["steps"]
    for step in steps:
        for fusion in step["fusions"]:
            counts[fusion] += 1
    return counts


@pytest.mark.parametrize("name", ["llama_untied", "gemma3_default", "smollm2", "gemma3"])
def test_only_the_hooked_layer_is_defused(name, opened):
    model, ids = opened(name)
    options = {"n_ctx": N_CTX, "threads": 2, "chunk": 7}
    bare = engine_hooks.plan(model, **options)
    layer, n_defused = 2, 0
    with session_of(model) as session:
        hooks = Hooks(session)
        session.decode_all(ids[:3])
        for site, info in hooks.sites.items():
            layers = [layer] if info.per_layer else None
            hook = hooks.capture(site, 4, layers=layers).hook
            plan = session.plan()
            asked = engine_hooks.plan(model, [("capture", site, layers)], **options)
            assert plan["hash"] == asked["hash"] != bare["hash"], site
            for form in ("decode", "prefill"):
                now, before = layers_of(plan, form), layers_of(bare, form)
                changed = [l for l in range(len(now)) if plan[form]["layers"][l]["steps"]
                           != bare[form]["layers"][l]["steps"]]
                assert set(changed) <= {layer}, f"{site}: layers {changed} changed"
                lost = {f for f in now[layer] if before[layer][f] and not now[layer][f]}
                reasons = {
                    f["id"]: f["reason"] for f in plan[form]["layers"][layer]["fusions"]
                }
                assert all(site in reasons[f] for f in lost), (site, reasons)
            (entry,) = plan["hooks"]
            assert entry["site"] == site and entry["layers"] == (layers or [-1])
            n_defused += entry["route"] == "de-fused"
            # what runs is what the plan says
            before = session.fusions()
            session.decode([ids[0]])
            after = session.fusions()
            ran = {f: after[f] - before[f] for f in after}
            assert ran == step_fusions(plan), site
            fewer = {f for f, n in step_fusions(bare).items() if n > ran[f]}
            assert fewer == set(entry["fusions"]), (site, fewer, entry)
            assert (entry["route"] == "de-fused") == bool(fewer), entry
            assert hooks.sites[site].route.decode() == entry["route"], site
            hooks.remove(hook)
            session.truncate(3)
        assert session.plan()["hash"] == bare["hash"]
    assert n_defused >= 5


# -- gate I for sites ------------------------------------------------------------------------------------------
def captured_sites(model, ids, shapes, **options):
    """shapes: (site, layer) -> width. Layers of one width share a hook."""
    with session_of(model, n_ctx=len(ids), **options) as session:
        hooks, captures = Hooks(session), []
        for site, info in hooks.sites.items():
            layers = {}
            for at in sorted(at for at in shapes if at[0] == site):
                layers.setdefault(shapes[at], []).append(at[1])
            for width, some in layers.items():
                # every layer is the default
                which = {} if len(some) == info.n_layers else {"layers": some}
                n_rows = len(ids) * len(some)
                captures.append((site, n_rows, hooks.capture(site, n_rows, width, **which)))
        session.decode_all(ids)
        out = {}
        for site, n_rows, capture in captures:
            rows, records = capture.values(), capture.records()
            assert len(records) == n_rows
            for layer in {r[4] for r in records}:
                at = [i for i, r in enumerate(records) if r[4] == layer]
                assert [records[i][0] for i in at] == list(range(len(ids)))
                assert [records[i][2] for i in at] == list(ids)
                out[site, layer] = rows[at]
        return out


def site_error(got, want):
    """Largest error relative to the largest value; the same places must be -infinity."""
    hidden = np.isneginf(want)
    if got.shape != want.shape or (np.isneginf(got) != hidden).any():
        return np.inf
    return gates.relative_error(np.where(hidden, 0, got), np.where(hidden, 0, want))


@pytest.mark.parametrize("mode", ["reference", "planned-fused"])
@pytest.mark.parametrize("name", [t.name for t in toys.TOYS.values() if not t.formats])
def test_sites_against_float64(name, mode, engine, toy_path):
    ids = [int(i) for i in toys.token_ids(toys.TOYS[name], 45)]
    want = ref_forward.Reference(toy_path(name)).sites(ids)
    with engine.Model(toy_path(name)) as model:
        shapes = {at: value.shape[1] for at, value in want.items()}
        got = captured_sites(model, ids, shapes, mode=mode, kv="f32")
    assert set(got) == set(want)
    errors = {at: site_error(got[at], want[at]) for at in want}
    worst = max(errors, key=errors.get)
    print(f"{name} {mode}: worst {worst} {errors[worst]:.1e}")
    assert errors[worst] <= gates.TOY_BAR_F32, {a: e for a, e in errors.items() if not e <= 1e-4}


def test_float64_sites_tell_neighbours_apart(engine, toy_path):
    """The bar of the test above is missed when a site gives what the one before or after it is."""
    ids = [int(i) for i in toys.token_ids(toys.TOYS["gemma3_scaled"], 45)]
    want = ref_forward.Reference(toy_path("gemma3_scaled")).sites(ids)
    for a, b in [
        ("resid_pre", "resid_mid"),
        ("attn_norm", "ffn_norm"),
        ("q", "q_norm"),
        ("q_norm", "q_rope"),
        ("k_norm", "k_rope"),
        ("k", "v"),
        ("ffn_gate", "ffn_up"),
        ("ffn_act", "ffn_up"),
        ("attn_out", "ffn_out"),
        ("resid_mid", "resid_post"),
        ("attn_scores", "attn_pattern"),
    ]:
        assert site_error(want[a, 1], want[b, 1]) > 100 * gates.TOY_BAR_F32, (a, b)
    assert site_error(want["logits_raw", -1], want["logits", -1]) > 100 * gates.TOY_BAR_F32


# -- actions, order, heads ---------------------------------------------------------------------------------------
def test_declared_actions_and_their_order(opened):
    model, ids = opened("llama_untied")
    rng = np.random.default_rng(1)
    with session_of(model) as session:
        hooks = Hooks(session)
        site, layers, n = "ffn_gate", [1], len(ids)
        width = hooks.width(site)
        v = rng.normal(size=width).astype(np.float32)
        low_rank = rng.normal(size=2 * width * 3).astype(np.float32)
        a, b = low_rank[: 3 * width].reshape(width, 3), low_rank[3 * width :].reshape(3, width)
        f32 = np.float32
        cases = [
            ("add", {"values": v, "alpha": 0.5}, lambda x: x + f32(0.5) * v),
            ("scale", {"alpha": -1.5}, lambda x: x * f32(-1.5)),
            ("set", {"values": v}, lambda x: np.broadcast_to(v, x.shape)),
            ("zero", {}, lambda x: x * 0),
            ("interpolate", {"values": v, "alpha": 0.25}, lambda x: x + f32(0.25) * (v - x)),
            (
                "project_out",
                {"values": v},
                lambda x: x - ((x @ v) / (v @ v))[:, None] * v,
            ),
            ("clamp", {"low": -0.25, "high": 0.5}, lambda x: np.clip(x, -0.25, 0.5)),
            ("low_rank", {"values": low_rank, "rank": 3, "alpha": 0.125},
             lambda x: x + 0.125 * (x @ b.T) @ a.T),
        ]
        for action, options, function in cases:
            before = hooks.capture(site, n, layers=layers)
            after = hooks.capture(site, n, layers=layers, flags=POST)
            hook = hooks.add(action, site, layers=layers, **options)
            session.truncate(0)
            session.decode_all(ids)
            x, y = before.values(), after.values()
            want = function(x.astype(np.float64))
            assert np.allclose(y, want, rtol=1e-5, atol=1e-6 * np.abs(want).max() + 1e-30), action
            assert (y != x).any() and hooks.stats(hook).writes == n
            for each in (hook, before.hook, after.hook):
                hooks.remove(each)
        # two writers: in the order of registration
        for order in ((("scale", {"alpha": 2.0}), ("add", {"values": v})),
                      (("add", {"values": v}), ("scale", {"alpha": 2.0}))):
            before = hooks.capture(site, n, layers=layers)
            after = hooks.capture(site, n, layers=layers, flags=POST)
            made = [hooks.add(action, site, layers=layers, **options) for action, options in order]
            session.truncate(0)
            session.decode_all(ids)
            x = before.values()
            want = x * f32(2) + v if order[0][0] == "scale" else (x + v) * f32(2)
            assert np.array_equal(after.values(), want), order
            for each in made + [before.hook, after.hook]:
                hooks.remove(each)


@pytest.mark.parametrize("mode", MODES)
def test_heads(mode, opened):
    """A writer with a head selector leaves the other heads alone; captures of a pattern have zeros there."""
    model, ids = opened("gemma3_default")
    with session_of(model, mode=mode) as session:
        hooks = Hooks(session)
        before = hooks.capture("attn_z", len(ids), layers=[3])
        after = hooks.capture("attn_z", len(ids), layers=[3], flags=POST)
        hooks.add("zero", "attn_z", layers=[3], heads=[1, 2])
        some = hooks.capture("attn_pattern", len(ids), layers=[2], heads=[0, 3])
        every = hooks.capture("attn_pattern", len(ids), layers=[2])
        session.decode_all(ids)
        x, y = (c.values().reshape(len(ids), 4, -1) for c in (before, after))
        assert np.array_equal(y[:, [0, 3]], x[:, [0, 3]]) and not y[:, 1:3].any() and x[:, 1:3].all()
        p, q = (c.values().reshape(len(ids), 4, N_CTX) for c in (some, every))
        assert np.array_equal(p[:, [0, 3]], q[:, [0, 3]]) and not p[:, 1:3].any()
        assert np.allclose(q.sum(axis=2), 1, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_patching_with_captured_rows(mode, opened):
    """The residual of layer 1 taken from another prompt gives that prompt's logits, bit for bit."""
    model, ids = opened("llama_untied")
    other = ids[::-1]
    with session_of(model, mode=mode) as session:
        hooks = Hooks(session)
        clean = hooks.capture("resid_post", len(ids), layers=[2])
        want = session.decode_all(ids)
        rows, records = clean.values().copy(), clean.raw_records()
        hooks.remove(clean.hook)
        session.truncate(0)
        assert first_difference(session.decode_all(other), want)
        hook = hooks.add("replace", "resid_post", layers=[2], values=rows, records=records)
        session.truncate(0)
        assert not first_difference(session.decode_all(other), want)
        assert hooks.stats(hook).writes == len(ids)


# -- case 38 -----------------------------------------------------------------------------------------------------
N_PROMPT, N_NEW = 10, 20


def steered_run(model, mode, vector, calls, chunk):
    """Prompt in calls of these sizes, then greedy tokens. (ids, logits of the last prompt token and on, stats)."""
    ids = [int(i) for i in toys.token_ids(toys.TOYS["llama_untied"], N_PROMPT)]
    with session_of(model, mode=mode, chunk=chunk, kv="f32") as session:
        hooks = Hooks(session)
        hook = hooks.add("add", "resid_post", layers=[1], values=vector)
        last = hooks.capture("resid_post", 9, layers=[1], select="last_of_prompt")
        first_new = hooks.capture(
            "resid_post", 9, layers=[1], select="generated", position_range=(0, 2)
        )
        at = 0
        for n in calls:
            session.tokens_are(2 if at + n < N_PROMPT else 1)
            rows = [session.decode(ids[at : at + n])]
            at += n
        session.tokens_are(0)
        for _ in range(N_NEW):
            ids.append(int(np.argmax(rows[-1])))
            rows.append(session.decode([ids[-1]]))
        assert [r[0] for r in last.records()] == [N_PROMPT - 1]
        assert [r[0] for r in first_new.records()] == [N_PROMPT, N_PROMPT + 1]
        return ids, np.array(rows), hooks.stats(hook)


def test_case_38_steering_covers_prompt_and_generated(opened, toy_path):
    model, _ = opened("llama_untied")
    vector = np.random.default_rng(38).normal(size=model.info.n_embd).astype(np.float32)
    want = None
    for mode in MODES:
        for calls, chunk in [((10,), 0), ((10,), 1), ((10,), 3), ((3, 3, 4), 0), ((3, 3, 4), 2)]:
            ids, logits, stats = steered_run(model, mode, vector, calls, chunk)
            if want is None:
                want = ids, logits
            assert ids == want[0] and not first_difference(logits, want[1]), (mode, calls, chunk)
            assert (stats.positions, stats.writes) == (30, 30), (mode, calls, chunk)
            assert (stats.prefill_positions, stats.decode_positions) == (10, 20)
    reference = ref_forward.Reference(toy_path("llama_untied"))
    reference.change = lambda site, layer, x: (
        x + vector if (site, layer) == ("resid_post", 1) else x
    )
    oracle = reference.logits(want[0])[N_PROMPT - 1 :]
    assert gates.relative_error(want[1], oracle) <= gates.TOY_BAR_F32
    reference.change = None  # and the bar tells the difference
    clean = reference.logits(want[0])[N_PROMPT - 1 :]
    assert gates.relative_error(want[1], clean) > 100 * gates.TOY_BAR_F32
    with session_of(model) as session, pytest.raises(engine_ctypes.EngineError) as raised:
        Hooks(session).add("add", "residual_post", values=vector)
    assert raised.value.code == 10 and "resid_post" in raised.value.message


# -- case 39 -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_case_39a_clean_hooked_clean(mode, opened):
    model, ids = opened("smollm2")
    vector = np.random.default_rng(39).normal(size=model.info.n_embd).astype(np.float32)
    with session_of(model, mode=mode) as session:
        hooks = Hooks(session)
        first = session.decode_all(ids)
        session.truncate(0)
        hook = hooks.add("add", "resid_mid", layer_range=(3, 9), values=vector)
        second = session.decode_all(ids)
        assert hooks.stats(hook).writes == 6 * len(ids)
        hooks.remove(hook)
        session.truncate(0)
        third = session.decode_all(ids)
    assert not first_difference(third, first) and first_difference(second, first)
    with session_of(model, mode="reference") as session:
        Hooks(session).add("add", "resid_mid", layer_range=(3, 9), values=vector)
        assert not first_difference(session.decode_all(ids), second), "not as from scratch"


@pytest.mark.parametrize("mode", MODES)
def test_case_39c_failing_at_every_call(mode, opened):
    model, ids = opened("gemma3_default")
    want = plain(model, ids)
    n_calls = -(-len(ids) // 7) * model.info.n_layer
    with session_of(model, mode=mode) as session:
        hooks = Hooks(session)
        count = {"n": 0, "fail_at": 0}

        def fail(event, rows):
            count["n"] += 1
            if count["n"] == count["fail_at"]:
                rows.fill(np.nan)
                return 5
            return 0

        hook = hooks.write("attn_out", fail)
        watcher = hooks.capture("embed", 999)
        for k in range(1, n_calls + 1):
            count.update(n=0, fail_at=k)
            captured = watcher.n_rows()
            with pytest.raises(engine_ctypes.EngineError) as raised:
                session.decode_all(ids)
            assert raised.value.code == HOOK_FAILED and "attn_out" in raised.value.message
            assert session.position() == 0 and count["n"] == k
            assert watcher.n_rows() == captured
        count.update(n=0, fail_at=0)
        assert not first_difference(session.decode_all(ids), want)
        assert count["n"] == n_calls and hooks.stats(hook).calls == n_calls
        assert watcher.n_rows() == len(ids)


@pytest.mark.parametrize("mode", MODES)
def test_case_39d_scopes(mode, opened):
    model, ids = opened("llama_untied")
    with session_of(model, mode=mode) as session:
        hooks = Hooks(session)
        outer, inner = hooks.open_scope(), hooks.open_scope()
        kept = hooks.add("scale", "ffn_out", alpha=1.5, scope=outer)
        want = session.decode_all(ids)
        gone = hooks.add("scale", "ffn_out", alpha=0.5, scope=inner)
        session.truncate(0)
        assert first_difference(session.decode_all(ids), want)
        hooks.close_scope(inner)
        session.truncate(0)
        assert not first_difference(session.decode_all(ids), want)
        assert hooks.stats(kept).writes == 3 * len(ids) * model.info.n_layer
        with pytest.raises(engine_ctypes.EngineError):
            hooks.stats(gone)
        hooks.close_scope(outer)
        session.truncate(0)
        assert not first_difference(session.decode_all(ids), plain(model, ids))


# -- unembed, ring -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["gemma3_scaled", "smollm2"])
@pytest.mark.parametrize("mode", MODES)
def test_unembed_is_the_head(name, mode, opened):
    model, ids = opened(name)
    with session_of(model, mode=mode) as session:
        hooks = Hooks(session)
        last = hooks.capture("resid_post", len(ids), layers=[model.info.n_layer - 1])
        logits = session.decode_all(ids)
        assert not first_difference(session.unembed(last.values()), logits)
        assert not first_difference(session.unembed(last.values()[-1:]), logits[-1:])
        assert session.position() == len(ids)


@pytest.mark.parametrize("mode", MODES)
def test_ring(mode, opened):
    model, ids = opened("llama_untied")
    with session_of(model, mode=mode) as session:
        hooks = Hooks(session)
        ring = hooks.capture("resid_post", 5, layers=[0], flags=RING)
        every = hooks.capture("resid_post", len(ids), layers=[0])
        session.decode_all(ids)
        stats = hooks.stats(ring.hook)
        assert (stats.rows_captured, stats.rows_dropped) == (len(ids), 0)
        for i in range(len(ids) - 5, len(ids)):
            assert ring._records[i % 5].position == i
            assert np.array_equal(ring._rows[i % 5], every.values()[i])


# -- gate D ------------------------------------------------------------------------------------------------------
def peak_kib(mode, path):
    program = Path(os.environ.get("ENGINE_BIN") or engine_ctypes.ROOT / "build/release/bin")
    program /= "decode_proxy"
    if not program.is_file():
        pytest.skip(f"no {program}")
    # a process of its own measures its child: VmHWM of a finished process is its ru_maxrss
    script = (
        "import resource, subprocess, sys;"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss);"
        "sys.exit(done.returncode)"
    )
    command = [program, path, "--mode", mode, "--tokens", "8", "--threads", "2", "--ctx", "256"]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, command), "--skip-bandwidth", "--json"],
        capture_output=True,
        check=True,
    )
    return int(done.stdout)


def test_gate_d_plans_cost_no_memory(engine):
    path = models.find_model("smollm2")
    if path is None:
        pytest.skip("smollm2: run examples/fetch_model.sh smollm2")
    kib = {mode: min(peak_kib(mode, path) for _ in range(3)) for mode in MODES}
    print("peak RSS in KiB:", kib)
    file_kib = path.stat().st_size // 1024
    assert kib["reference"] > 0.9 * file_kib  # the weights are in it
    for mode in ("planned", "planned-fused"):
        assert kib[mode] <= 1.01 * kib["reference"], kib
