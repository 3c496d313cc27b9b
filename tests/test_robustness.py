"""Whatever is thrown at it: no belief is ever NaN or infinite."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

from kernelbp import Graph, Model, Relation
from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels import Delta, Gaussian, Linear, Sphere

MODELS, GRAPHS_EACH, CHUNKS = 130, 8, 10
KERNELS = {
    "gaussian": lambda rng: Gaussian("median", scale=rng.choice([0.2, 1.0, 3.0])),
    "narrow gaussian": lambda rng: Gaussian(float(rng.choice([1e-3, 1.0, 1e3]))),
    "linear": lambda rng: Linear(float(rng.choice([0.0, 1.0]))),
    "delta": lambda rng: Delta(),
    "words": lambda rng: Delta(),
    "sphere": lambda rng: Sphere("median"),
    "sklearn": lambda rng: RBF(float(rng.choice([0.1, 1.0]))),
    "plane": lambda rng: Gaussian("median"),
}
SCALES = [1.0, 1.0, 1e8, 1e-8]


class Kind:
    """One variable of a problem: its kernel, and a way to draw values of it."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.name = rng, str(rng.choice(list(KERNELS)))
        self.kernel = KERNELS[self.name](rng)
        self.scale = float(rng.choice(SCALES))
        self.offset = float(rng.choice([0.0, 0.0, 1.0, 1e8]))
        self.shape = str(rng.choice(["spread", "spread", "constant", "few"]))

    def draw(self, size: int) -> np.ndarray:
        rng = self.rng
        if self.name in ("delta", "words"):
            codes = rng.integers(3 if self.shape == "constant" else 0, 4, size)
            return np.array(["a", "b", "c", "d"], dtype=object)[codes] if self.name == "words" else codes
        if self.name == "sphere":
            rows = rng.standard_normal((size, 3))
            rows = np.repeat(rows[:1], size, axis=0) if self.shape == "constant" else rows
            return rows / np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rng.standard_normal((size, 2 if self.name == "plane" else 1))
        if self.shape == "constant":
            rows = np.zeros_like(rows)
        if self.shape == "few":
            rows = np.round(rows)
        rows = self.scale * rows + self.offset
        return rows if self.name == "plane" else rows[:, 0]

    def outliers(self, values: np.ndarray) -> np.ndarray:
        """Some readings far from all that was trained on, where the variable knows far."""
        if self.name in ("delta", "words", "sphere"):
            return values
        far = self.rng.random(len(values)) < 0.3
        moved = values.copy()
        moved[far] = values[far] * 1e3 + self.rng.choice([-1e9, 1e3, 1e12])
        return moved


def random_model(rng: np.random.Generator):
    """A model, what to fit it to, and its two variables."""
    hidden, leaf = Kind(rng), Kind(rng)
    size = int(rng.choice([1, 2, 5, 12, 20]))
    first = hidden.draw(size)
    second = first.copy() if rng.random() < 0.3 else hidden.draw(size)
    model = Model(
        {"x": hidden.kernel, "y": leaf.kernel},
        {
            "r": Relation("x", "x", symmetric=bool(rng.random() < 0.5)),
            "s": Relation("x", "y", evidence=str(rng.choice(["likelihood", "posterior"]))),
        },
        regularization=float(rng.choice([0.0, 1e-10, 1e-4, 1.0])),
        residual=float(rng.choice([0.0, 1e-3, 0.1])),
        max_rank=int(rng.choice([3, 20])),
        power=int(rng.choice([1, 4])),
        marginal=str(rng.choice(["parzen", "embedding"])),
    )
    return model, {"r": (first, second), "s": (hidden.draw(size), leaf.draw(size))}, hidden, leaf


def random_graph(rng: np.random.Generator, seen: np.ndarray, readings: np.ndarray, hidden: Kind, leaf: Kind):
    """A graph with evidence of all sorts."""
    nodes = int(rng.integers(1, 7))
    edges = [pair for pair in itertools.combinations(range(nodes), 2) if rng.random() < 0.5]
    graph = Graph.from_edges(
        np.array(edges, dtype=np.intp).reshape(-1, 2), variables=["x"] * nodes, relation="r"
    )
    if rng.random() < 0.8:
        where = rng.permutation(nodes)[: rng.integers(1, nodes + 1)]
        told = leaf.outliers(readings[rng.integers(len(readings), size=len(where))])
        graph = graph.observe("s", told, nodes=where)
    if rng.random() < 0.3:
        graph = graph.fix([int(rng.integers(nodes))], hidden.outliers(seen[rng.integers(len(seen), size=1)]))
    if rng.random() < 0.3:
        points = (
            np.array(sorted(set(seen)), dtype=object) if hidden.name == "words" else np.unique(seen, axis=0)
        )
        table = rng.random(len(points))
        table[rng.random(len(table)) < 0.5] *= 1e-300
        graph = graph.soften([int(rng.integers(nodes))], points, table + 1e-300)
    return graph


def random_settings(rng: np.random.Generator) -> dict:
    return {
        "schedule": str(rng.choice(["auto", "flooding", "sweep"])),
        "update": str(rng.choice(["constant", "constant", "linear", "full"])),
        "normalization": str(rng.choice(["largest", "largest", "norm"])),
        "dtype": rng.choice([np.float32, np.float64]),
        "damping": float(rng.choice([0.0, 0.5])),
        "max_iterations": 4,
    }


def blind_candidates(pairs: dict, hidden: Kind, leaf: Kind):
    """Each variable with all its training values: a kernel may be zero on every one of them."""
    yield hidden, np.concatenate([*pairs["r"], pairs["s"][0]])
    yield leaf, pairs["s"][1]


def readings_of(beliefs, seen):
    """Everything a belief can be asked, by name; what its variable does not have is left out."""
    questions = {
        "probabilities": beliefs.probabilities,
        "mean": beliefs.mean,
        "std": beliefs.std,
        "mode": beliefs.mode,
        "quantiles": lambda: beliefs.quantile([0.0, 0.05, 0.5, 1.0]),
        "density": lambda: beliefs.density(seen),
        "sample": lambda: beliefs.sample(3, seed=0),
        "expectation": lambda: beliefs.expect(lambda values: np.ones(len(values))),
    }
    answers = {}
    for name, ask in questions.items():
        try:
            answers[name] = ask()
        except UnsupportedError:
            continue
    return answers


@pytest.mark.filterwarnings("ignore::kernelbp.errors.ConvergenceWarning")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_belief_is_ever_nan_or_infinite(chunk):
    for seed in range(chunk, MODELS, CHUNKS):
        rng = np.random.default_rng(seed)
        model, pairs, hidden, leaf = random_model(rng)
        if any(
            np.all(kind.kernel.diag(values) == 0) for kind, values in blind_candidates(pairs, hidden, leaf)
        ):
            with pytest.raises(InputError, match="is zero on all training values"):
                model.fit(pairs)
            continue
        model.fit(pairs)
        seen = np.concatenate([*pairs["r"], pairs["s"][0]])
        for problem in range(GRAPHS_EACH):
            graph, how = random_graph(rng, seen, pairs["s"][1], hidden, leaf), random_settings(rng)
            told = f"model {seed}, graph {problem}: {hidden.name}, {hidden.shape}, {how}"
            beliefs = model.infer(graph, conditionals="embedding", weighting="bethe", **how)
            assert np.isfinite(beliefs.residuals).all(), told
            answers = readings_of(beliefs, seen)
            for name, answer in answers.items():
                assert len(answer) == graph.n_nodes
                if answer.dtype != object:
                    assert np.isfinite(answer).all(), f"{name} of {told}"
            table = answers["probabilities"]
            assert (table >= 0).all() and np.allclose(table.sum(axis=1), 1.0), told


@pytest.mark.filterwarnings("ignore::kernelbp.errors.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_reading_unlike_all_training_values_says_nothing(dtype):
    rng = np.random.default_rng(0)
    states = rng.standard_normal(300)
    model = Model(
        {"x": Gaussian(0.5), "y": Gaussian(0.2)}, {"s": Relation("x", "y", evidence="likelihood")}
    ).fit({"s": (states, states + 0.3 * rng.standard_normal(300))})
    alone = Graph.from_edges([], variables=["x"] * 2)
    settings = {"conditionals": "embedding", "weighting": "bethe", "dtype": dtype}
    told = model.infer(alone.observe("s", [1e6, np.nan]), **settings)
    line = np.linspace(-3, 3, 50)
    assert np.allclose(*told.density(line), rtol=1e-12)


def test_contradictory_evidence_still_gives_a_distribution():
    """Two readings that no value could have given together."""
    values = np.array([0, 1] * 20)
    model = Model({"x": Delta(), "y": Delta()}, {"s": Relation("x", "y")}, regularization=0.0)
    model.fit({"s": (values, values)})
    alone = Graph.from_edges([], variables=["x"]).observe("s", [0, 1], nodes=[0, 0])
    found = model.infer(alone, conditionals="embedding", weighting="bethe").probabilities()
    assert np.isfinite(found).all() and np.isclose(found.sum(), 1.0)
