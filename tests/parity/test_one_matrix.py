"""Gate I': one quantised matrix at a time against a float64 reference with the same activation
rounding, so that a fault of a format cannot hide behind int8 rounding.

A code flips where the engine's float32 value and the reference's float64 value lie on two sides of a
rounding boundary. Positions with a flip are counted, must be few and must really be boundary cases;
they are then judged too, by a second reference that is given the engine's own operand (captured by a
hook), in which nothing can flip. Run with -s to see the figures.
"""

import numpy as np
import pytest

import engine_hooks
import one_matrix
import ref_quant
import toys

BAR = 1e-6  # of the largest logit, where no code flips
N_POSITIONS = 100
N_VARIANT = 20  # of these, with weights as stored, in mode reference, and by scalar kernels
# A boundary is met when x * 127 / amax lies within rounding of k + 1/2: up to 127 steps, each known
# to about 1e-6 in the engine.
FLIP_DISTANCE = 2e-4
MOST_FLIPS = 1e-3  # of all codes; two of 10,000 are expected at most

ALL_FORMATS = ["F32", "F16", "BF16", *one_matrix.BLOCK_FORMATS]
WHATS = list(one_matrix.MATRICES)
IDS = [int(i) for i in toys.token_ids(one_matrix.TOY, N_POSITIONS)]


class Case:
    """One file, the engine's logits and operand, and the reference's logits in both variants."""

    def __init__(self, engine, folder, what, format_name):
        self.what, self.format_name = what, format_name
        self.data = one_matrix.matrix_bytes(what, format_name)
        self.path = one_matrix.write(folder / f"{what}_{format_name}.gguf", what, format_name, self.data)
        self.site = one_matrix.MATRICES[what][1]
        self.operand, self.kernels = None, {}
        with engine.Model(self.path) as model:
            self.logits = self.run(model)
            for options in ({"weights": "stored"}, {"mode": "reference"}, {"target": "scalar", "chunk": 7}):
                other = self.run(model, IDS[:N_VARIANT], **options)
                assert other.tobytes() == self.logits[:N_VARIANT].tobytes(), options
            if self.site:
                with model.session(kv="f32", n_ctx=N_POSITIONS) as session:
                    site, layer = self.site
                    hooks = engine_hooks.Hooks(session)
                    layers = {} if layer < 0 else {"layers": [layer]}
                    seen = hooks.capture(site, N_POSITIONS, **layers)
                    assert np.array_equal(session.decode_all(IDS), self.logits)
                    self.operand = seen.values().copy()
                    assert self.operand.shape[0] == N_POSITIONS
        self.own = self.reference()
        self.given = self.reference(given=self.operand) if self.site else self.own

    def run(self, model, ids=IDS, **options):
        with model.session(kv="f32", n_ctx=N_POSITIONS, **options) as session:
            logits = session.decode_all(ids)
            for name, n in session.kernels().items():
                self.kernels[name] = self.kernels.get(name, 0) + n
            return logits

    def reference(self, given=None):
        reference = one_matrix.RoundingReference(self.path, self.what, self.format_name, given)
        logits = reference.logits(IDS)
        if given is None:
            self.own_operand = reference.own
        return logits

    def error(self, oracle):
        """[T]: the largest error of each position as a part of the largest logit of all."""
        return np.abs(self.logits - oracle).max(axis=1) / np.abs(oracle).max()

    def flips(self):
        """bool [T, width]: codes that differ; and how far from its boundary the farthest lies."""
        block = one_matrix.block_of_activation(self.format_name)
        if not self.site or not block:
            return np.zeros((N_POSITIONS, 1), bool), 0.0
        ours, _ = one_matrix.quantise(self.operand, block)
        theirs, scales = one_matrix.quantise(self.own_operand, block)
        flipped = ours != theirs
        exact = self.own_operand.reshape(theirs.shape) / scales
        far = np.abs(np.abs(exact - np.floor(exact)) - 0.5)[flipped]
        return flipped.reshape(N_POSITIONS, -1), float(far.max(initial=0.0))


@pytest.fixture(scope="module")
def case(engine, tmp_path_factory):
    """Function: (what is quantised, format) -> Case, made once."""
    folder, made = tmp_path_factory.mktemp("one_matrix"), {}

    def get(what, format_name):
        if (what, format_name) not in made:
            made[what, format_name] = Case(engine, folder, what, format_name)
        return made[what, format_name]

    return get


@pytest.mark.parametrize("format_name", ALL_FORMATS)
@pytest.mark.parametrize("what", WHATS)
def test_one_matrix(what, format_name, case, record_property):
    c = case(what, format_name)
    flipped, far = c.flips()
    clean = ~flipped.any(axis=1)
    own, given = c.error(c.own), c.error(c.given)
    figures = {
        "codes": flipped.size,
        "flips": int(flipped.sum()),
        "positions_with_flips": int((~clean).sum()),
        "error": float(own[clean].max()),
        "error_with_flips": float(own.max()),
        "error_given_operand": float(given.max()),
    }
    print(what, format_name, figures)
    for name, value in figures.items():
        record_property(name, value)
    assert flipped.sum() <= MOST_FLIPS * flipped.size and far < FLIP_DISTANCE
    assert clean.sum() >= N_POSITIONS // 2, "too few positions are left to judge"
    assert own[clean].max() <= BAR
    assert given.max() <= BAR
    # the scalar and the vector kernel of this format did run
    operation = "embed" if what == "embedding" else "matmul"
    names = [n for n in c.kernels if n.startswith(f"{operation}_{format_name.lower()}_")]
    assert any("scalar" in n for n in names), c.kernels
    assert what == "embedding" or any("hwy" in n for n in names), c.kernels


# -- the gate can fail -------------------------------------------------------------------------------
# Not TQ1_0: 256 bytes stand for 243 groups of five digits, so two neighbours may be the same.
@pytest.mark.parametrize("format_name", [f for f in ALL_FORMATS if f not in ("F32", "TQ1_0")])
def test_every_byte_of_a_block_counts(format_name, case):
    """The lowest bit of any byte of a head row, changed, moves a logit beyond the bar."""
    c = case("head", format_name)
    values, n_bytes = one_matrix.sizes(format_name)
    block = one_matrix.block_of_activation(format_name)
    operand = c.operand.astype(np.float64)
    if block:
        codes, scales = one_matrix.quantise(c.operand, block)
        operand = (codes * scales.astype(np.float64)).reshape(operand.shape)
    row = 7
    faulty = np.repeat(c.data[row][None], n_bytes, axis=0)
    places = np.arange(n_bytes) + n_bytes * (np.arange(n_bytes) % (c.data.shape[1] // n_bytes))
    faulty[np.arange(n_bytes), places] ^= 1
    weights = ref_quant.dequantize(format_name, faulty.reshape(-1)).reshape(n_bytes, -1)
    moved = np.abs(operand @ weights.astype(np.float64).T - c.logits[:, row, None])
    moved = moved.max(axis=0) / np.abs(c.given).max()
    print(format_name, f"least {moved.min():.1e} by byte {moved.argmin()}")
    assert moved.min() > 10 * BAR


@pytest.mark.parametrize("format_name", one_matrix.BLOCK_FORMATS)
@pytest.mark.parametrize("what", WHATS)
def test_one_broken_scale_is_seen(what, format_name, case, engine, tmp_path):
    """The engine on a file with one scale wrong by a 64th, against the reference on the right one."""
    c = case(what, format_name)
    broken = c.data.copy()
    row = IDS[3] if what == "embedding" else 5
    broken[row, one_matrix.scale_at(format_name)] ^= 0x10
    path = one_matrix.write(tmp_path / "broken.gguf", what, format_name, broken)
    with engine.Model(path) as model:
        logits = c.run(model)
    flipped, _ = c.flips()
    clean = ~flipped.any(axis=1)
    error = np.abs(logits - c.own)[clean].max() / np.abs(c.own).max()
    print(what, format_name, f"{error:.1e}")
    assert error > 3 * BAR


@pytest.mark.parametrize("format_name", one_matrix.BLOCK_FORMATS)
def test_other_activation_rounding_is_seen(format_name, case):
    """Without the rounding, or with blocks of another size, the reference is far away: int8 rounding
    would hide what this gate is for."""
    c = case("head", format_name)
    head = ref_quant.dequantize(format_name, c.data.reshape(-1)).reshape(c.data.shape[0], -1)
    unrounded = c.operand.astype(np.float64) @ head.astype(np.float64).T
    codes, scales = one_matrix.quantise(c.operand, 64)
    other = (codes * scales.astype(np.float64)).reshape(c.operand.shape) @ head.astype(np.float64).T
    assert c.error(unrounded).max() > 100 * BAR and c.error(other).max() > 100 * BAR
