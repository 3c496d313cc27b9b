"""The records a model is made of, and whether a value is of the type that a field or a setting is annotated with.

A new record gets its line in `RECORDS`; new fields and settings are found by themselves. Nothing here touches
files.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, Literal, get_args, get_origin

import numpy as np

from kernelbp.calibration import GraphCalibration
from kernelbp.learning.embedding import Embedding, Moments
from kernelbp.learning.estimators import Calibration, RidgePosterior
from kernelbp.learning.examples import VariableExamples
from kernelbp.learning.marginal import Marginal, Parzen
from kernelbp.learning.operators import LearnedRelation
from kernelbp.learning.probability import States
from kernelbp.learning.readings import ReadingLikelihood
from kernelbp.learning.tuning import Smoothing
from kernelbp.lowrank import Basis, LowRank
from kernelbp.model import Fitted, Model, Relation
from kernelbp.refining import Refined
from kernelbp.values import Kind

__all__ = ["RECORDS", "fits", "fits_setting", "hints_of", "init_fields", "settings_of_model"]

RECORDS: dict[str, type[Any]] = {
    record.__name__: record
    for record in (
        Basis,
        Calibration,
        Embedding,
        Fitted,
        GraphCalibration,
        Kind,
        LearnedRelation,
        LowRank,
        Marginal,
        Moments,
        Parzen,
        ReadingLikelihood,
        Refined,
        Relation,
        RidgePosterior,
        Smoothing,
        States,
        VariableExamples,
    )
}
"""The dataclasses a file may hold: the only classes that reading it can make, besides kernels."""


def settings_of_model() -> list[str]:
    """What the constructor takes, so that a new setting is stored without a change here."""
    return list(inspect.signature(Model).parameters)


def init_fields(record: type[Any]) -> list[Field[Any]]:
    """The fields a record is made from; others follow from them and are not stored."""
    return [field for field in fields(record) if field.init]


def fits_setting(value: Any, name: str) -> bool:
    """As `fits`, but 50.0 passes for 50 and 1 for True, as they do in fitting."""
    number = value.item() if isinstance(value, np.generic) else value
    meant = [value]
    if type(number) is float and number.is_integer():
        meant.append(int(number))
    if type(number) is int and number in (0, 1):
        meant.append(bool(number))
    hint = hints_of(Model.__init__).get(name, Any)
    return any(fits(one, hint) for one in meant)


def hints_of(record: Any) -> dict[str, Any]:
    """The annotated types of a record's fields or of a function's arguments, by name."""
    if record is Relation:  # it checks itself, and takes a 1 for True
        return {}
    try:
        return typing.get_type_hints(record)
    except NameError:  # a type imported for the type checker only: then fields go unchecked here
        return {}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; annotations beyond those the records use let it pass."""
    value = value.item() if isinstance(value, np.generic) else value
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint is None or hint is types.NoneType:
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in args)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return isinstance(value, tuple) and all(fits(part, args[0]) for part in value)
        return isinstance(value, tuple) and len(value) == len(args) and all(map(fits, value, args))
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, Mapping) and all(
            fits(key, args[0]) and fits(part, args[1]) for key, part in value.items()
        )
    if origin is np.ndarray:
        scalar = (get_args(args[1]) or (Any,))[0]
        return isinstance(value, np.ndarray) and (
            scalar is Any or not isinstance(scalar, type) or issubclass(value.dtype.type, scalar)
        )
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) and origin is None else True
