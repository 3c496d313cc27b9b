"""What must hold of a fitted model: its parts fit each other, and its numbers are what they are taken for.

The same checks are made before a model is written and after one is read. Nothing here touches files or nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelbp.errors import InputError, ModelFileError
from kernelbp.kernels import check_values
from kernelbp.learning.embedding import Embedding
from kernelbp.learning.estimators import RidgePosterior
from kernelbp.learning.operators import LearnedRelation
from kernelbp.learning.readings import ReadingLikelihood
from kernelbp.model import Fitted, Model
from kernelbp.refining import Refined
from kernelbp.storage.limits import require

__all__ = ["check_model"]


def check_model(model: Model, fitted: Fitted) -> None:
    """Refuse a model whose parts do not fit together. Used in reading, and in writing so that both agree."""
    try:
        model._check_settings()
    except InputError as error:
        raise ModelFileError(f"settings do not hold: {error}") from error
    require(
        {name: (r.first, r.second) for name, r in fitted.relations.items()}
        == {name: (r.first, r.second) for name, r in model.relations.items()},
        "the relations learned are not the model's; if they were changed after fitting, fit again",
    )
    ends = {end for learned in fitted.relations.values() for end in (learned.first, learned.second)}
    require(set(fitted.embeddings) == ends, "the variables learned are not those of the relations")
    for name, embedding in fitted.embeddings.items():
        _check_embedding(embedding, f"variable {name!r}")
    for name, learned in fitted.relations.items():
        first, second = fitted.embeddings[learned.first], fitted.embeddings[learned.second]
        _check_relation(learned, first, second, f"relation {name!r}")
    if fitted.refined is not None:
        _check_refined(fitted.refined, fitted.relations)


def _check_refined(refined: Refined, relations: Mapping[str, LearnedRelation]) -> None:
    require(set(refined.joints) <= set(relations), "a relation was refined that was not learned")
    for name, joint in refined.joints.items():
        require(
            _are_masses(joint, relations[name].joint.shape),
            f"relation {name!r}: its refined table does not fit the states of its variables",
        )
    require(
        all(math.isfinite(number) and number > 0 for number in (refined.power, refined.temperature))
        and math.isfinite(refined.score),
        "the power, temperature or score that goes with refined tables is not one",
    )


def _check_embedding(embedding: Embedding, name: str) -> None:
    values, counts, kind = embedding.examples.values, embedding.examples.counts, embedding.examples.kind
    require(
        (kind.form, kind.dimension) in (("scalar", 1), ("object", 0))
        or (kind.form == "vector" and kind.dimension >= 1),
        f"{name}: its kind is not one",
    )
    require(
        not kind.shape
        or (kind.form == "vector" and len(kind.shape) == 2 and math.prod(kind.shape) == kind.dimension),
        f"{name}: the shape of its values is not one",
    )
    require(len(values) >= 1, f"{name}: has no examples")
    require(
        counts.shape == (len(values),)
        and bool(np.isfinite(counts).all())
        and counts.min() >= 0
        and counts.sum() > 0,
        f"{name}: counts of examples do not fit the examples",
    )
    columns = {
        "examples": values,
        "basis points": embedding.basis.points,
        "support points": embedding.support.points,
        "states": embedding.states.points,
    }
    for what, column in columns.items():
        expected = (len(column),) if kind.form == "object" else (len(column), kind.dimension)
        dtype = np.dtype(object if kind.form == "object" else np.float64)
        require(
            column.shape == expected and column.dtype == dtype,
            f"{name}: {what} are not of the variable's kind",
        )
        require(kind.form == "object" or bool(np.isfinite(column).all()), f"{name}: {what} are not finite")
        try:
            check_values(embedding.kernel, column, what)
        except InputError as error:
            raise ModelFileError(f"{name}: {error}") from error
    for what, basis in (("basis", embedding.basis), ("support", embedding.support)):
        triangle, size = basis.triangle, len(basis.points)
        require(
            triangle.shape == (size, size)
            and bool(np.isfinite(triangle).all())
            and bool((np.diagonal(triangle) > 0).all())
            and not np.tril(triangle, -1).any()
            and basis.power >= 1,
            f"{name}: the triangle of its {what} does not fit its points",
        )
    require(
        embedding.states.power >= 1 and _are_masses(embedding.state_weights, (len(embedding.states.points),)),
        f"{name}: the weights of its states do not fit them",
    )
    require(
        all(math.isfinite(residual) and residual >= 0 for residual in embedding.residuals),
        f"{name}: its residuals are not numbers of at least 0",
    )


def _check_relation(learned: LearnedRelation, first: Embedding, second: Embedding, name: str) -> None:
    table, moments = learned.table, learned.moments
    require(
        type(table) is sparse.csr_array
        and table.shape == (len(first.examples.values), len(second.examples.values)),
        f"{name}: its table of pairs does not fit the examples of its variables",
    )
    require(
        table.data.dtype == np.float64
        and bool(np.isfinite(table.data).all())
        and bool((table.data >= 0).all()),
        f"{name}: its table of pairs holds what is no count",
    )
    expected = {
        "auto": (moments.auto[0], first.basis, first.basis),
        "auto of the second end": (moments.auto[1], second.basis, second.basis),
        "cross": (moments.cross, first.basis, second.basis),
        "tensor": (moments.tensor[0], first.basis, second.support),
        "tensor of the second end": (moments.tensor[1], second.basis, first.support),
    }
    for what, (matrix, rows, columns) in expected.items():
        require(
            matrix.shape == (len(rows.points), len(columns.points)) and bool(np.isfinite(matrix).all()),
            f"{name}: its moments ({what}) do not fit the bases of its variables",
        )
    require(
        _are_masses(learned.joint, (len(first.states.points), len(second.states.points))),
        f"{name}: its joint table does not fit the states of its variables",
    )
    smoothing = learned.smoothing
    require(
        all(math.isfinite(width) and width >= 0 for width in smoothing.widths)
        and 0 <= smoothing.mixing <= 1
        and (smoothing.score is None or math.isfinite(smoothing.score)),
        f"{name}: its smoothing does not hold",
    )
    if isinstance(learned.predictor, RidgePosterior):
        _check_posterior(learned.predictor, first, second, name)
    if learned.reading is not None:
        _check_reading(learned.reading, first, second, name)
    require(
        math.isfinite(moments.total)
        and moments.total > 0
        and math.isfinite(learned.regularization)
        and learned.regularization >= 0,
        f"{name}: its number of pairs or its regularization does not hold",
    )


def _check_posterior(posterior: RidgePosterior, first: Embedding, second: Embedding, name: str) -> None:
    size, calibration = len(first.states.points), posterior.calibration
    require(
        posterior.weights.shape == (len(second.basis.points), size)
        and posterior.offset.shape == (size,)
        and bool(np.isfinite(posterior.weights).all() and np.isfinite(posterior.offset).all())
        and _are_masses(posterior.base, (size,))
        and _are_masses(posterior.prior, (size,))
        and _are_masses(calibration.factors, (size,)),
        f"{name}: its regression does not fit the features and states of its variables",
    )
    require(
        all(math.isfinite(number) and number >= 0 for number in (posterior.ridge, posterior.width))
        and math.isfinite(calibration.temperature)
        and calibration.temperature > 0
        and 0 <= calibration.share <= 1
        and (calibration.score is None or math.isfinite(calibration.score)),
        f"{name}: the settings of its regression do not hold",
    )


def _check_reading(reading: ReadingLikelihood, first: Embedding, second: Embedding, name: str) -> None:
    points, table = reading.points, reading.table
    require(
        second.examples.values.dtype != object
        and second.examples.values.shape[1] == 1
        and points.ndim == 1
        and len(points) >= 1
        and points.dtype == table.dtype == np.float64
        and bool(np.isfinite(points).all())
        and bool((np.diff(points) > 0).all()),
        f"{name}: the points of its likelihood are not finite readings in ascending order",
    )
    require(
        table.shape == (len(points), len(first.states.points))
        and bool(np.isfinite(table).all() and (table > 0).all()),
        f"{name}: the table of its likelihood does not fit its points and states",
    )
    require(
        0 <= reading.share <= 1 and math.isfinite(reading.score) and math.isfinite(reading.exact),
        f"{name}: the settings of its likelihood do not hold",
    )


def _are_masses(table: NDArray[np.float64], shape: tuple[int, ...]) -> bool:
    return table.shape == shape and bool(np.isfinite(table).all() and (table >= 0).all() and table.sum() > 0)
