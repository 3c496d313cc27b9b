"""Discrete belief propagation on a grid by other libraries, by a NumPy loop and by us: the same marginals.

All functions take

    unary     (rows * columns, states) positive evidence of each node, nodes numbered row by row
    pairwise  (states, states) positive potential of every edge, its first axis the upper or left end
    shape     (rows, columns)

and run that many flooding iterations without damping. The libraries are imported when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["PEERS", "Peer", "Timed", "numpy_marginals", "our_marginals", "problem"]

Matrix = NDArray[np.float64]
Shape = tuple[int, int]


class Timed(NamedTuple):
    """What a method found: marginals (nodes, states), seconds to set up (and compile), seconds of all iterations."""

    marginals: Matrix
    setup: float
    seconds: float


class Peer(NamedTuple):
    """Another library.

    Attributes
    ----------
    name : as its authors write it
    module : to import
    install : the command that brings it
    trusted : iterations after which its marginals can still be compared, if not all
    marginals : its answer
    """

    name: str
    module: str
    install: str
    trusted: int | None
    marginals: Callable[[Matrix, Matrix, Shape, int], Timed]


def problem(shape: Shape, states: int, seed: int) -> tuple[Matrix, Matrix]:
    """Noisy evidence and a smooth, asymmetric coupling weak enough for thirty iterations to settle."""
    rng = np.random.default_rng(seed)
    place = np.arange(states) / states
    pairwise = np.exp(-2.0 * np.abs(place[:, None] - place - 0.1))
    unary = np.exp(-4.0 * (place - rng.random((shape[0] * shape[1], 1))) ** 2)
    return unary, pairwise


def our_marginals(
    unary: Matrix,
    pairwise: Matrix,
    shape: Shape,
    iterations: int,
    *,
    dtype: DTypeLike = np.float32,
    n_jobs: int | None = None,
) -> Timed:
    """`kernelbp.rivals.DiscreteModel`. Compilation counts as setting up."""
    from kernelbp.graph import Graph
    from kernelbp.kernels import Delta
    from kernelbp.model import Relation
    from kernelbp.rivals import DiscreteModel

    begin = perf_counter()
    states = np.arange(unary.shape[1])
    model = DiscreteModel(
        {"x": Delta()}, {"beside": Relation("x", "x", potential=pairwise)}, levels={"x": states}
    ).fit()
    graph = Graph.grid(shape, variable="x", relation="beside")
    graph = graph.soften(np.arange(len(unary)), states, unary)
    run = partial(
        model.infer,
        graph,
        weighting="bethe",
        schedule="flooding",
        max_iterations=iterations,
        tolerance=0.0,
        damping=0.0,
        dtype=dtype,
        n_jobs=n_jobs,
    )
    run()
    setup = perf_counter() - begin
    begin = perf_counter()
    beliefs = run()
    spent = perf_counter() - begin
    return Timed(beliefs.probabilities(), setup, spent)


def numpy_marginals(unary: Matrix, pairwise: Matrix, shape: Shape, iterations: int) -> Timed:
    """A plain loop over whole arrays in float32: four messages arrive at each pixel, ones beyond the border."""
    begin = perf_counter()
    evidence = unary.reshape(*shape, -1).astype(np.float32)
    forward = pairwise.astype(np.float32)
    backward = forward.T.copy()
    above, below, left, right = (np.ones_like(evidence) for _ in range(4))
    for _ in range(iterations):
        vertical, horizontal = evidence * left * right, evidence * above * below
        down = (vertical * above)[:-1] @ forward
        up = (vertical * below)[1:] @ backward
        eastward = (horizontal * left)[:, :-1] @ forward
        westward = (horizontal * right)[:, 1:] @ backward
        for sent in (down, up, eastward, westward):
            sent /= sent.max(axis=-1, keepdims=True)
        above[1:], below[:-1], left[:, 1:], right[:, :-1] = down, up, eastward, westward
    spent = perf_counter() - begin
    product = (evidence * above * below * left * right).reshape(unary.shape).astype(np.float64)
    return Timed(product / product.sum(axis=1, keepdims=True), 0.0, spent)


def pgmax_marginals(unary: Matrix, pairwise: Matrix, shape: Shape, iterations: int) -> Timed:
    """PGMax on jax, float32: sum-product is temperature 1. Compilation counts as setting up."""
    jax, pgmax = import_module("jax"), import_module("pgmax")
    import_module("pgmax.fgraph"), import_module("pgmax.fgroup")
    infer = import_module("pgmax.infer")

    begin = perf_counter()
    variables = import_module("pgmax.vgroup").NDVarArray(num_states=unary.shape[1], shape=shape)
    graph = pgmax.fgraph.FactorGraph(variable_groups=variables)
    ends = [[variables[divmod(int(node), shape[1])] for node in edge] for edge in _grid_edges(shape)]
    graph.add_factors(
        pgmax.fgroup.PairwiseFactorGroup(variables_for_factors=ends, log_potential_matrix=np.log(pairwise))
    )
    bp = infer.build_inferer(graph.bp_state, backend="bp")
    arrays = bp.init(evidence_updates={variables: np.log(unary).reshape(*shape, -1)})
    compiled = jax.jit(partial(bp.run, num_iters=iterations, damping=0.0, temperature=1.0))
    jax.block_until_ready(compiled(arrays))
    setup = perf_counter() - begin
    begin = perf_counter()
    found = jax.block_until_ready(compiled(arrays))
    spent = perf_counter() - begin
    marginals = infer.get_marginals(bp.get_beliefs(found))[variables]
    return Timed(np.asarray(marginals, dtype=np.float64).reshape(unary.shape), setup, spent)


def inferlo_marginals(unary: Matrix, pairwise: Matrix, shape: Shape, iterations: int) -> Timed:
    """InferLO's compiled message passing, float64, in logarithms.

    It never normalises: on a grid its messages grow about threefold with each iteration, so that marginals are lost
    to rounding before the thirtieth. They are compared after a dozen, and only its time is taken after more. (InferLO's
    port of libDAI's BP does normalise, but needs minutes for each iteration on a grid of this size.)
    """
    inferlo: Any = import_module("inferlo")
    passing = import_module("inferlo.pairwise.inference.message_passing")

    begin = perf_counter()
    model = inferlo.PairWiseFiniteModel(*unary.shape)
    model.set_field(np.log(unary))
    for i, j in _grid_edges(shape).tolist():
        model.add_interaction(i, j, np.log(pairwise))
    passing.infer_message_passing(model, max_iter=1)
    setup = perf_counter() - begin
    begin = perf_counter()
    found = passing.infer_message_passing(model, max_iter=iterations)
    spent = perf_counter() - begin
    return Timed(np.asarray(found.marg_prob, dtype=np.float64), setup, spent)


def _grid_edges(shape: Shape) -> NDArray[np.intp]:
    """Edges (n, 2) of a grid, upper or left end first."""
    number = np.arange(shape[0] * shape[1]).reshape(shape)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    right = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    return np.concatenate([down, right])


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        # PGMax asks for TensorFlow and Jupyter, which are not for an extra of ours to bring.
        Peer("PGMax", "pgmax", 'pip install pgmax==0.6.1 "jax<0.8"', None, pgmax_marginals),
        Peer("InferLO", "inferlo", "pip install kernelbp[peers]", 12, inferlo_marginals),
    )
}
