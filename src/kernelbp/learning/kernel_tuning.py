r"""Any kernel's parameters by cross-validation: how well values, compared so, tell about their partners.

With pairs :math:`(x_i, y_i)` and a fixed kernel l on the partners, the conditional embedding of y given x is
:math:`\mu_{Y|x} = \sum_i \beta_i(x)\, l(y_i, \cdot)` with :math:`\beta(x) = (K + \lambda m I)^{-1} k(x)`
(the paper's Section 3). On held-out pairs it is judged by

.. math:: \lVert l(y, \cdot) - \mu_{Y|x} \rVert^2,

whose expectation is least at the true conditional embedding: a proper score that needs no density and so
serves every domain (Grünewälder et al., 2012). It is reported as the share explained, 1 - loss / (loss of
the marginal embedding): 0 says nothing about the partner, 1 says all.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels import Kernel, check_values, require_kernel, resolve
from kernelbp.values import column_of, is_number, is_whole

__all__ = ["Tuned", "tune"]

Matrix = NDArray[np.float64]

FACTORS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Multiples tried of a setting that the data resolve ("median")."""
STEPS = (-2, -1, 0, 1, 2)
"""The same where it is a whole number."""
REGULARIZATIONS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""The paper's lambda: every kernel is judged at the one that suits it best."""
MOST_TRIED = 500
"""Combinations of parameters."""


@dataclass(frozen=True)
class Tuned:
    """What `tune` found.

    Attributes
    ----------
    kernel : the best kernel, with every setting a number
    parameters : its parameters that were tried
    regularization : the lambda at which it did best
    score : share explained of held-out partners, at most 1
    tried : every combination of parameters with its score at its best lambda
    """

    kernel: Kernel
    parameters: dict[str, Any]
    regularization: float
    score: float
    tried: tuple[tuple[dict[str, Any], float], ...]


def tune(
    kernel: Kernel,
    X: Any,
    Y: Any,
    *,
    parameters: Mapping[str, Sequence[Any]] | None = None,
    partner: Kernel | None = None,
    folds: int = 5,
    most: int = 800,
    seed: int = 0,
) -> Tuned:
    """Choose the named parameters of any kernel by K-fold cross-validation on pairs.

    Parameters
    ----------
    kernel : Kernel
        Of the values X; one of scikit-learn or of your own will do, if it is a dataclass, has
        ``get_params`` and ``set_params``, or keeps its parameters as attributes.
    X, Y : m values each
        Pairs of related values: the two ends of a relation, or a hidden value's reading and the hidden value.
    parameters : mapping from name to the values to try, optional
        All combinations are tried. Parameters of kernels within kernels are written with dots:
        ``"left.bandwidth"``, ``"fields.angle.concentration"``. By default what lies about whatever the data
        resolve ("median"): multiples from a tenth to ten times, or whole numbers up to two away, as far as the
        kernel takes them.
    partner : Kernel, optional
        That of Y, which judges and is not changed; by default `kernel` as resolved on Y, for a relation of
        a variable with itself.
    folds : int
        At least 2.
    most : int
        Pairs used, drawn at random if there are more: the cost grows with their cube.
    seed : int
        Of the draw and the folds.

    Returns
    -------
    Tuned

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbp.kernels import Gaussian
    >>> from kernelbp import tune
    >>> x = np.random.default_rng(0).uniform(-3, 3, 200)
    >>> found = tune(Gaussian(), x, np.sign(np.sin(4 * x)), parameters={"bandwidth": [0.03, 0.3, 3.0]},
    ...              partner=Gaussian(1.0))
    >>> found.kernel, bool(found.score > 0.8)
    (Gaussian(bandwidth=0.3), True)
    """
    require_kernel(kernel, "kernel")
    judging = kernel if partner is None else require_kernel(partner, "partner")
    given = column_of(kernel, X, "X")[0]
    answers = column_of(judging, Y, "Y")[0]
    _check_counts(given, answers, folds, most)
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(given))[:most]
    given, answers = given[chosen], answers[chosen]
    check_values(kernel, given, "X")
    candidates = [
        (named, _with(kernel, named)) for named in _combinations(parameters, kernel, resolve(kernel, given))
    ]
    judge = resolve(judging, answers)
    check_values(judge, answers, "Y")
    likeness = np.asarray(judge(answers, answers), dtype=np.float64)

    fold = np.arange(len(given)) % folds  # the pairs were shuffled when they were drawn
    scored = []
    for named, candidate in candidates:
        resolved = resolve(candidate, given)
        losses = _losses(np.asarray(resolved(given, given), dtype=np.float64), likeness, fold)
        best = int(np.argmin(losses))
        scored.append((named, resolved, REGULARIZATIONS[best], float(losses[best])))
    baseline = _marginal_loss(likeness, fold)
    shares = [1.0 - loss / baseline if baseline > 0 else 0.0 for *_, loss in scored]
    first = int(np.argmax(shares))
    named, resolved, regularization, _ = scored[first]
    tried = tuple((entry[0], share) for entry, share in zip(scored, shares, strict=True))
    return Tuned(resolved, named, regularization, shares[first], tried)


def _losses(gram: Matrix, likeness: Matrix, fold: NDArray[np.intp]) -> Matrix:
    """Mean squared distance of held-out embeddings, for each regularisation."""
    total = np.zeros(len(REGULARIZATIONS))
    for held in range(int(fold.max()) + 1):
        out, learned = np.flatnonzero(fold == held), np.flatnonzero(fold != held)
        sizes, axes = np.linalg.eigh(gram[np.ix_(learned, learned)])
        sizes = np.maximum(sizes, 0.0)
        largest = max(float(sizes[-1]) / len(learned), np.finfo(np.float64).tiny)
        projected = axes.T @ gram[np.ix_(learned, out)]
        inner, cross = likeness[np.ix_(learned, learned)], likeness[np.ix_(learned, out)]
        own = likeness.diagonal()[out]
        for place, regularization in enumerate(REGULARIZATIONS):
            # relative to the kernel's size, so that a multiple of a kernel scores alike
            weights = axes @ (projected / (sizes + regularization * largest * len(learned))[:, None])
            loss = own - 2.0 * (weights * cross).sum(axis=0) + (weights * (inner @ weights)).sum(axis=0)
            total[place] += loss.sum()
    return total / len(fold)


def _marginal_loss(likeness: Matrix, fold: NDArray[np.intp]) -> float:
    """The same of the mean embedding, which does not look at x."""
    total = 0.0
    for held in range(int(fold.max()) + 1):
        out, learned = np.flatnonzero(fold == held), np.flatnonzero(fold != held)
        inner = likeness[np.ix_(learned, learned)].mean()
        total += float(
            (likeness.diagonal()[out] - 2.0 * likeness[np.ix_(learned, out)].mean(axis=0) + inner).sum()
        )
    return total / len(fold)


def _combinations(
    parameters: Mapping[str, Sequence[Any]] | None, kernel: Kernel, resolved: Kernel
) -> list[dict[str, Any]]:
    if parameters is None:
        parameters = {
            name: [near for near in _around(number) if _is_taken(kernel, name, near)]
            for name, number in _resolved_numbers(kernel, resolved)
        }
        if not parameters:
            raise InputError(
                f"parameters: {kernel!r:.80} leaves nothing to the data; name the parameters to try"
            )
    if not isinstance(parameters, Mapping) or not parameters:
        raise InputError("parameters: expected a mapping from the name of a parameter to the values to try")
    for name, values in parameters.items():
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or not len(values):
            raise InputError(
                f"parameters[{name!r}]: expected a sequence of values to try, got {values!r:.80}"
            )
    made = [dict(zip(parameters, values, strict=True)) for values in itertools.product(*parameters.values())]
    if len(made) > MOST_TRIED:
        raise InputError(f"parameters: {len(made)} combinations; at most {MOST_TRIED} are tried, name fewer")
    return made


def _around(number: float) -> list[float]:
    return [number + step for step in STEPS] if is_whole(number) else [number * factor for factor in FACTORS]


def _is_taken(kernel: Any, name: str, value: float) -> bool:
    """Whether a kernel can have a parameter: a decay above 1 it cannot."""
    try:
        _with(kernel, {name: value})
    except InputError:
        return False
    return True


def _resolved_numbers(kernel: Any, resolved: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Parameters that were words and became numbers, of a kernel and those within it."""
    for name, before in _parts(kernel):
        after = dict(_parts(resolved)).get(name)
        if isinstance(before, str) and is_number(after):
            yield prefix + name, after if is_whole(after) else float(after)  # type: ignore[misc, arg-type]
        elif isinstance(before, Mapping) or (isinstance(before, Kernel) and not isinstance(before, type)):
            yield from _resolved_numbers(before, after, f"{prefix}{name}.")


def _parts(holder: Any) -> list[tuple[str, Any]]:
    if isinstance(holder, Mapping):
        return list(holder.items())
    if is_dataclass(holder):
        return [(field.name, getattr(holder, field.name)) for field in fields(holder)]
    return []


def _with(kernel: Any, named: Mapping[str, Any]) -> Any:
    for path, value in named.items():
        kernel = _replaced(kernel, path.split("."), value, path)
    return kernel


def _replaced(holder: Any, path: list[str], value: Any, whole: str) -> Any:
    """A copy of a kernel, or of a mapping of kernels, with one parameter set."""
    name, rest = path[0], path[1:]
    if isinstance(holder, Mapping):
        if name not in holder:
            raise _unknown(whole, holder, list(holder))
        return {**holder, name: _replaced(holder[name], rest, value, whole) if rest else value}
    if is_dataclass(holder) and not isinstance(holder, type):
        known = [field.name for field in fields(holder)]
        if name not in known:
            raise _unknown(whole, holder, known)
        inner = _replaced(getattr(holder, name), rest, value, whole) if rest else value
        return replace(holder, **{name: inner})
    if hasattr(holder, "get_params") and hasattr(holder, "set_params"):
        known = sorted(holder.get_params())
        joined = "__".join(path)
        if joined not in known:
            raise _unknown(whole, holder, known)
        changed = copy.deepcopy(holder)
        changed.set_params(**{joined: value})
        return changed
    if not hasattr(holder, name):
        raise _unknown(whole, holder, sorted(vars(holder)) if hasattr(holder, "__dict__") else [])
    changed = copy.copy(holder)
    setattr(changed, name, _replaced(getattr(holder, name), rest, value, whole) if rest else value)
    return changed


def _unknown(path: str, holder: Any, known: list[str]) -> InputError:
    return InputError(
        f"parameters: {path!r} is not a parameter of the kernel; "
        f"{type(holder).__name__} has {', '.join(known) or 'none'}"
    )


def _check_counts(given: Any, answers: Any, folds: Any, most: Any) -> None:
    if len(given) != len(answers):
        raise InputError(f"Y: expected {len(given)} values, one for each of X, got {len(answers)}")
    if not is_whole(folds) or folds < 2:
        raise InputError(f"folds: expected a whole number of at least 2, got {folds!r}")
    if not is_whole(most) or most < folds:
        raise InputError(
            f"most: expected a whole number of at least {folds}, the number of folds, got {most!r}"
        )
    if len(given) < 2 * folds:
        raise InputError(f"X: expected at least {2 * folds} pairs for {folds} folds, got {len(given)}")
