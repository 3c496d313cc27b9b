"""Ways to clean an image with one noisy reading a pixel: kernel BP and its rivals, their settings, and the search for better ones.

Rivals are told the true likelihood of a reading and learn the relation of neighbouring pixels, as in the paper.
Kernel BP learns both from examples: from pairs only, or (the default) fitting settings and refining tables on the training
images too.
"""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernelbp import rivals
from kernelbp.datasets import grid_pairs, load_sunset, sunset
from kernelbp.datasets.sunsets import FILE_SIZES
from kernelbp.errors import ConvergenceWarning
from kernelbp.experiments.study import Case, Result, Row, Study
from kernelbp.figures import root_mean_square_error
from kernelbp.graph import Graph
from kernelbp.kernels import Gaussian
from kernelbp.model import Model, Relation

__all__ = [
    "COUNTED",
    "ESTIMATES",
    "NOISE",
    "OURS",
    "RIVALS",
    "Chosen",
    "Kind",
    "Measured",
    "Method",
    "Sample",
    "Training",
    "chosen",
    "compile_all",
    "grid_of",
    "limited",
    "measure",
    "paper_image",
    "parts",
    "search_case",
    "with_noise",
    "with_seed",
    "written",
]

Image = NDArray[np.float64]
Options = Mapping[str, Any]
Kind = Literal["paper", "best found", "pairs only", "counted tables", "default"]
Estimate = Literal["mean", "mode"]

NOISE = 30.0
"""Standard deviation of the noise, in gray levels."""
SHORT, MOST_TIMED = 0.5, 5
"""Inferences are timed again until they have taken so many seconds together, or so many times."""
ESTIMATES: tuple[Estimate, ...] = ("mean", "mode")
DISCRETE_WEIGHTS = (None, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 1.0)
DISCRETE_LENGTHS = (8, 10, 12, 15, 18, 22, 27, 33)
DISCRETE_TEMPERATURES = tuple(float(t) for t in np.geomspace(0.5, 2.0, 13))
"""Edge weights (None: as asked), iterations and temperatures that discrete BP is tuned with."""
OF_INFER = frozenset({"weighting", "schedule", "max_iterations", "tolerance", "damping", "seed"})
"""Settings that go to `infer`."""
TUNED = "tuned"
"""The setting that says whether a method's `tune` is used; all others go to the constructor."""
SEEDS_APART = 1000
"""Between the random numbers of a rival's first image in runs of one seed and the next: more than there are images."""


def paper_image(study: Study, colors: int, side: int) -> Image:
    """From the paper's file, where files are given and have pixels at this size; else the same picture drawn."""
    data = study.options.data
    if data is None or side not in FILE_SIZES:
        return sunset(colors, side, noise=0.0)[0]
    return load_sunset(data, colors, side)


@dataclass(frozen=True)
class Sample:
    """An image to clean, with the truth behind it, both (rows, columns)."""

    clean: Image
    noisy: Image


@dataclass(frozen=True)
class Training:
    """What methods learn from.

    Attributes
    ----------
    pairs : values of neighbouring pixels, two arrays (m,)
    readings : pixels and what was read there, two arrays (n,); only kernel BP learns from these
    levels : gray levels of discrete BP, (levels,)
    most_pairs : pairs that rivals which fit densities take, evenly from all; None for all
    images : clean and noisy, on which kernel BP fits its settings
    """

    pairs: tuple[Image, Image]
    readings: tuple[Image, Image]
    levels: Image
    most_pairs: int | None = None
    images: Sequence[Sample] = ()

    @classmethod
    def of(cls, clean: Image, noisy: Image) -> Training:
        """A clean image and a noisy copy of it."""
        readings = clean.ravel(), noisy.ravel()
        return cls(grid_pairs(clean), readings, np.unique(clean), images=[Sample(clean, noisy)])

    def some_pairs(self) -> tuple[Image, Image]:
        """At most `most_pairs` of them."""
        step = 1 if self.most_pairs is None else max(1, -(-len(self.pairs[0]) // self.most_pairs))
        return self.pairs[0][::step], self.pairs[1][::step]


def grid_of(noisy: Image) -> Graph:
    """A grid with one reading per pixel."""
    return Graph.grid(noisy.shape, variable="pixel", relation="beside").observe("read as", noisy.ravel())


@dataclass(frozen=True)
class Method:
    """A way to clean images.

    Attributes
    ----------
    name : as in the tables
    fit : a fitted model, from what there is to learn from and settings of the constructor
    settings : those to run with, by kind
    start : what a search begins with where that differs from the paper's settings
    stages : grids searched one after another, each around the best found so far
    tune : a fitted model, images to learn from and settings of `infer` to a model whose inference suits these images
    seeded : whether `infer` draws random numbers
    graph : of a noisy image, with its evidence
    """

    name: str
    fit: Callable[..., Any]
    settings: Mapping[Kind, Options]
    start: Options = field(default_factory=dict)
    stages: Sequence[Mapping[str, Sequence[Any]]] = ()
    tune: Callable[[Any, Sequence[Sample], Options], Any] | None = None
    seeded: bool = False
    graph: Callable[[Image], Graph] = grid_of


@dataclass(frozen=True)
class Measured:
    """One image cleaned.

    Attributes
    ----------
    mean, mode : of the beliefs, (rows, columns)
    iterations, converged : of the inference
    fit_seconds : of learning, by the clock
    seconds : of the inference
    iteration_seconds : of one more iteration; NaN where it cannot be told
    """

    mean: Image
    mode: Image
    iterations: int
    converged: bool
    fit_seconds: float
    seconds: float
    iteration_seconds: float

    def error(self, estimate: str, clean: Image) -> float:
        """RMSE of the mean or of the mode."""
        return root_mean_square_error(self.mean if estimate == "mean" else self.mode, clean)


# ---------------------------------------------------------------------- methods


def likelihood(pixel: Any, reading: Any) -> Any:
    """What a reading says of its pixel: the truth, given to the rivals."""
    return np.exp(-((pixel - reading) ** 2) / (2 * NOISE**2))


def parts(*, known: bool = False) -> tuple[dict[str, Any], dict[str, Relation]]:
    """Variables and relations, with the true likelihood or one to be learned."""
    reading = Relation("pixel", "reading", potential=likelihood if known else None)
    return (
        {"pixel": Gaussian(), "reading": Gaussian()},
        {"beside": Relation("pixel", "pixel", symmetric=True), "read as": reading},
    )


def _discrete(training: Training, **options: Any) -> Any:
    """With the true levels."""
    model = rivals.DiscreteModel(*parts(known=True), levels={"pixel": training.levels}, **options)
    return model.fit({"beside": training.pairs})


@dataclass(frozen=True, eq=False)
class TunedDiscrete:
    """Discrete BP whose edge weights, length and temperature suit training images: what kernel BP fits, too.

    Attributes
    ----------
    model : fitted
    weight : of every edge; None for those asked for
    iterations : at most
    temperature : what the logarithm of a belief is divided by
    """

    model: rivals.DiscreteModel
    weight: float | None
    iterations: int
    temperature: float

    @classmethod
    def on(cls, model: rivals.DiscreteModel, images: Sequence[Sample], asked: Options) -> TunedDiscrete:
        """Weight, then iterations, then both once more, each with the best temperature."""
        found: dict[tuple[float | None, int], tuple[float, float]] = {}
        graphs = [grid_of(image.noisy) for image in images]

        def best(weights: Sequence[float | None], lengths: Sequence[int]) -> tuple[float | None, int]:
            for key in itertools.product(weights, lengths):
                if key not in found:
                    tuned = [cls(model, *key, 1.0)._beliefs(graph, asked) for graph in graphs]
                    errors = {
                        t: np.mean(
                            [
                                np.mean((_tempered(b, t) - i.clean.ravel()) ** 2)
                                for b, i in zip(tuned, images, strict=True)
                            ]
                        )
                        for t in DISCRETE_TEMPERATURES
                    }
                    least = min(errors, key=lambda t: errors[t])
                    found[key] = float(errors[least]), least
            return min(found, key=lambda key: found[key])

        most = asked["max_iterations"]
        lengths = [length for length in DISCRETE_LENGTHS if length < most] + [most]
        weight, length = best(DISCRETE_WEIGHTS, [most])
        for _ in range(2):
            weight, length = best([weight], lengths)
            weight, length = best(DISCRETE_WEIGHTS, [length])
        return cls(model, weight, length, found[weight, length][1])

    def infer(self, graph: Graph, **asked: Any) -> TemperedBeliefs:
        """At most `iterations`, or those asked for if fewer."""
        return TemperedBeliefs(self._beliefs(graph, asked), self.temperature)

    def _beliefs(self, graph: Graph, asked: Options) -> Any:
        own: dict[str, Any] = {"max_iterations": min(asked["max_iterations"], self.iterations)}
        if self.weight is not None:
            own["weighting"] = np.full(graph.n_edges, self.weight)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return self.model.infer(graph, **{**asked, **own})


@dataclass(frozen=True, eq=False)
class TemperedBeliefs:
    """Beliefs of discrete BP read at a temperature."""

    beliefs: Any
    temperature: float

    @property
    def iterations(self) -> int:
        """That were run."""
        return int(self.beliefs.iterations)

    @property
    def converged(self) -> bool:
        """Whether messages settled."""
        return bool(self.beliefs.converged)

    def mean(self) -> Image:
        """Of every node."""
        return _tempered(self.beliefs, self.temperature)

    def mode(self) -> Image:
        """Of every node; the same at every temperature."""
        found: Image = self.beliefs.mode()
        return found


def _tempered(beliefs: Any, temperature: float) -> Image:
    """Means (nodes,) of beliefs raised to one over the temperature."""
    mass = beliefs.probabilities() ** (1.0 / temperature)
    means: Image = (mass @ np.asarray(beliefs.atoms, dtype=np.float64)) / mass.sum(axis=1)
    return means


def _mixture(training: Training, **options: Any) -> Any:
    model = rivals.GaussianMixtureModel(*parts(known=True), **options)
    return model.fit({"beside": training.some_pairs()})


def _particle(training: Training, **options: Any) -> Any:
    return rivals.ParticleModel(*parts(known=True), **options).fit({"beside": training.some_pairs()})


def _gaussian(training: Training, **options: Any) -> Any:
    """The true likelihood is linear, which is how this one is told of it."""
    model = rivals.GaussianModel(*parts(), linear={"read as": (1.0, 0.0, NOISE**2)}, **options)
    return model.fit({"beside": training.pairs})


def _paper_preset(training: Training, **options: Any) -> Any:
    pairs = {"beside": training.pairs, "read as": training.readings}
    return Model.paper(*parts(), **options).fit(pairs)


def _pairs_only(training: Training, **options: Any) -> Any:
    return _default(replace(training, images=()), **options)


def _default(training: Training, **options: Any) -> Any:
    """With the training images as graphs, whose true values are known."""
    pairs = {"beside": training.pairs, "read as": training.readings}
    return Model(*parts(), **options).fit(pairs, graphs=_graphs(training))


def _counted_tables(training: Training, **options: Any) -> Any:
    """The same, but the tables of relations are left as pairs made them."""
    return _pairs_only(training, **options).calibrate(_graphs(training), refining=False)


def _graphs(training: Training) -> list[tuple[Graph, Image]]:
    return [(grid_of(image.noisy), image.clean.ravel()) for image in training.images]


THIRTY: Options = {"max_iterations": 30, "damping": 0.0, "tolerance": 0.0}
RIVALS: tuple[Method, ...] = (
    Method(
        "discrete BP",
        _discrete,
        {"paper": {**THIRTY, "weighting": "bethe", "schedule": "flooding"}},
        {"smoothing": None, "tolerance": 1e-3},
        (
            # Ordinary belief propagation may be best before it goes astray, so its length is searched as well.
            {
                "weighting": ("bethe", "tree-reweighted"),
                "schedule": ("flooding", "sweep"),
                "damping": (0.0, 0.5),
                "max_iterations": (10, 30, 100),
            },
            {"smoothing": (None, 0.001, 0.1, 1.0)},
            {"damping": (0.0, 0.3, 0.5, 0.7), "max_iterations": (10, 15, 20, 30, 50)},
            {TUNED: (False, True), "max_iterations": (10, 15, 20, 33)},
        ),
        TunedDiscrete.on,
    ),
    Method(
        "Gaussian-mixture BP",
        _mixture,
        # The authors' sampler, "epsilon", draws from the same products to within 1% in three to four times the time.
        {"paper": {**THIRTY, "n_samples": 12, "sampler": "auto", "mixing": 0.0, "bandwidth": 1.0}},
        {"max_iterations": 5},
        (
            {"mixing": (0.0, 0.05, 0.2), "damping": (0.0, 0.5)},
            {"bandwidth": (1.0, 2.0, 4.0)},
            {"max_iterations": (3, 5, 10)},
            {"n_samples": (12, 20)},
        ),
        seeded=True,
    ),
    Method(
        "particle BP",
        _particle,
        {"paper": {**THIRTY, "n_particles": 30, "resample_every": 15, "mcmc_steps": 10, "mixing": 0.0}},
        {},
        (
            {"mixing": (0.0, 0.05, 0.15), "damping": (0.0, 0.5), "resample_every": (5, 15)},
            {"n_particles": (30, 60)},
        ),
        seeded=True,
    ),
    Method(
        "Gaussian BP",
        _gaussian,
        {"paper": {**THIRTY, "schedule": "flooding"}},
        {"max_iterations": 500, "tolerance": 1e-8},
        ({"damping": (0.0, 0.5), "regularization": (1e-6, 1e-3, 1e-2, 0.03, 0.1, 0.3)},),
    ),
)
OURS: tuple[Method, ...] = (
    Method("kernel BP", _paper_preset, {"paper": {"max_iterations": 30}}),
    # Nothing set by hand; without training images inference goes on until messages settle.
    Method("kernel BP", _pairs_only, {"pairs only": {}}),
    Method("kernel BP", _default, {"default": {}}),
)
COUNTED = Method("kernel BP", _counted_tables, {"counted tables": {}})
"""Our default but for the tables, to see what refining them is worth."""


def limited(method: Method, iterations: int) -> Method:
    """The same with at most so many iterations of the paper's settings."""
    settings = {
        kind: {**options, "max_iterations": min(iterations, options["max_iterations"])}
        if "max_iterations" in options
        else options
        for kind, options in method.settings.items()
    }
    return replace(method, settings=settings)


@dataclass(frozen=True)
class _Seeded:
    """A fitted model that draws random numbers of the run's seed."""

    model: Any
    seed: int

    def infer(self, graph: Graph, *, seed: int, **options: Any) -> Any:
        """Beliefs; `seed` is the number of the image."""
        return self.model.infer(graph, seed=seed + SEEDS_APART * self.seed, **options)


def with_seed(method: Method, seed: int) -> Method:
    """The same method, with random numbers of the run's seed if it draws any."""
    if not method.seeded:
        return method

    def fit(training: Training, **options: Any) -> _Seeded:
        return _Seeded(method.fit(training, **options), seed)

    return replace(method, fit=fit)


# ---------------------------------------------------------------------- running one


def with_noise(clean: Image, rng: np.random.Generator) -> Image:
    """The image with noise drawn anew; not clipped."""
    return clean + NOISE * rng.standard_normal(clean.shape)


def measure(
    method: Method, options: Options, training: Training, samples: Sequence[Sample], *, timed: bool = True
) -> list[Measured]:
    """Learn once, clean all samples.

    Seconds are by the clock, every method on as many threads as it uses. Those of one more iteration are of a whole
    inference less one that stops after its first, shared among the others. Short inferences are run a few times in turns with
    such a first iteration, and the medians taken: setting them up takes as long as they do, now more, now less.
    """
    compile_all()
    began = time.perf_counter()
    model = method.fit(training, **_of_constructor(options))
    asked = {name: value for name, value in options.items() if name in OF_INFER}
    if options.get(TUNED) and method.tune is not None:
        model = method.tune(model, training.images, asked)
    fitting = time.perf_counter() - began
    found = []
    for draw, sample in enumerate(samples):
        graph = method.graph(sample.noisy)
        seeded = {"seed": draw} if method.seeded else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            whole, first = {**asked, **seeded}, {**asked, **seeded, "max_iterations": 1}
            if timed and not draw:
                model.infer(replace(graph), **first)  # what a model makes ready and keeps is not to count
            firsts: list[float] = []
            wholes: list[float] = []
            while not wholes or (timed and sum(wholes) < SHORT and len(wholes) < MOST_TIMED):
                # On copies, for which nothing is ready.
                firsts.append(_clocked(model, replace(graph), first)[1] if timed else np.inf)
                beliefs, seconds = _clocked(model, replace(graph), whole)
                wholes.append(seconds)
        spent, once = float(np.median(wholes)), float(np.median(firsts))
        shape = sample.clean.shape
        found.append(
            Measured(
                beliefs.mean().reshape(shape),
                beliefs.mode().reshape(shape),
                beliefs.iterations,
                beliefs.converged,
                fitting,
                spent,
                # Less than nothing: too short to be told.
                (spent - once) / (beliefs.iterations - 1)
                if spent > once and beliefs.iterations > 1
                else np.nan,
            )
        )
    return found


def _of_constructor(options: Options) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in OF_INFER | {TUNED}}


def _clocked(model: Any, graph: Graph, options: Options) -> tuple[Any, float]:
    """Beliefs, and the seconds they took."""
    began = time.perf_counter()
    beliefs = model.infer(graph, **options)
    return beliefs, time.perf_counter() - began


@cache
def compile_all() -> None:
    """Compile what will be compiled, once: that is no part of an iteration."""
    clean, noisy = sunset(10, size=12)
    training, sample = Training.of(clean, noisy), Sample(clean, noisy)
    for method in (*RIVALS, *OURS):
        for options in (*method.settings.values(), {**method.settings.get("paper", {}), **method.start}):
            model = method.fit(training, **_of_constructor(options))
            asked = {k: v for k, v in options.items() if k in OF_INFER} | {"max_iterations": 2}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.infer(grid_of(sample.noisy), **asked)


# ---------------------------------------------------------------------- the search for settings


def search_case(
    name: str,
    method: Method,
    training: Training,
    samples: Sequence[Sample],
    *,
    stages: int | None = None,
    seconds: float = 1.0,
) -> Case:
    """Settings tried on images that are not tested, and which of mean and mode is better.

    Each row of the result is one trial. Settings that are not searched, the paper's and our default, are tried too,
    to see which estimate to take; a search counts the paper's among its own trials. `stages` is how many grids are searched;
    all if None.
    """

    def run() -> Result:
        rows = [_trial(method, kind, options, training, samples) for kind, options in method.settings.items()]
        best: Options = {**method.settings.get("paper", {}), **method.start}
        # What is found can be no worse than the paper's settings there.
        tried: dict[str, dict[str, Any]] = {
            row["options"]: {**row, "settings": "best found"}
            for row in rows
            if row["settings"] == "paper" and method.stages
        }
        for grid in method.stages[:stages]:
            for values in itertools.product(*grid.values()):
                options = {**best, **dict(zip(grid, values, strict=True))}
                if _as_json(options) not in tried:
                    tried[_as_json(options)] = _trial(method, "best found", options, training, samples)
            best = json.loads(min(tried, key=lambda text: _error(tried[text])))
        return Result([*rows, *tried.values()])

    return Case(name, run, seconds)


def _as_json(options: Options) -> str:
    return json.dumps(dict(options), sort_keys=True)


def _error(row: Row) -> float:
    """Of a trial; None stands for a number that is not finite."""
    error = row["RMSE"]
    return np.inf if error is None else float(error)


def _trial(
    method: Method, kind: Kind, options: Options, training: Training, samples: Sequence[Sample]
) -> dict[str, Any]:
    runs = measure(method, options, training, samples, timed=False)
    errors = {
        estimate: float(np.mean([run.error(estimate, s.clean) for run, s in zip(runs, samples, strict=True)]))
        for estimate in ESTIMATES
    }
    better = min(ESTIMATES, key=lambda estimate: errors[estimate])
    return {
        "method": method.name,
        "settings": kind,
        "options": _as_json(options),
        "estimate": better,
        "RMSE": errors[better],
    }


@dataclass(frozen=True)
class Chosen:
    """Settings to run with, and the estimate to judge by.

    Attributes
    ----------
    method : as it was searched
    kind : paper's, best found, or ours with nothing set by hand
    options : the settings
    estimate : mean or mode, whichever was better where settings were searched
    tried : how many settings were compared
    error : RMSE there
    """

    method: Method
    kind: Kind
    options: Options
    estimate: str
    tried: int
    error: float

    @property
    def name(self) -> str:
        """Method and kind of settings."""
        return f"{self.method.name}, {self.kind}"


def chosen(rows: Sequence[Row], methods: Sequence[Method]) -> list[Chosen]:
    """Of all trials of a search, for each method and kind of settings the one with the least error."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((str(row["method"]), str(row["settings"])), []).append(row)
    picked = []
    for (name, kind), trials in found.items():
        best = min(trials, key=_error)
        (method,) = (
            m
            for m in methods
            if m.name == name and (kind in m.settings or (kind == "best found" and m.stages))
        )
        options = json.loads(str(best["options"]))
        kept: Kind = kind  # type: ignore[assignment]
        estimate = str(best["estimate"])
        picked.append(Chosen(method, kept, options, estimate, len(trials), _error(best)))
    return picked


def written(options: Options) -> str:
    """Settings as text.

    Examples
    --------
    >>> written({"damping": 0.5, "max_iterations": 30})
    'damping 0.5, max_iterations 30'
    >>> written({})
    'none set by hand'
    """
    return ", ".join(f"{name} {options[name]}" for name in sorted(options)) or "none set by hand"
