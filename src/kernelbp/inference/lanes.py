"""Eight numbers at once, in compiled code.

A compiler that must allow for rows of any length, and for arrays that overlap, makes slow code of a plain loop over a
short row. Here rows are padded to multiples of eight (`kernelbp.inference.program.padded`), and what is meant is said outright:
``store(out, at, load(row, here) * spread(scale))`` reads, multiplies and writes eight numbers in three instructions.
"""

from __future__ import annotations

import operator
from typing import Any

import numba
import numba.core.cgutils
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import models, overload, register_model

from kernelbp.compiling import jit
from kernelbp.inference.program import LANES

__all__ = [
    "EIGHT",
    "exponential",
    "fused",
    "larger",
    "load",
    "logarithm",
    "magnitude",
    "peak",
    "power",
    "prefetch",
    "root",
    "smaller",
    "spread",
    "store",
    "total",
    "where_below",
    "widened",
]

EIGHT = np.uint64(LANES)
INDEX = ir.IntType(32)
# Numba's own types take what these make for functions of the compiler's context.
intrinsic: Any = numba.extending.intrinsic
get_or_insert_function: Any = numba.core.cgutils.get_or_insert_function


class Eight(types.Type):
    """Numba's type of eight numbers of one floating-point type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Eight({dtype})")


@register_model(Eight)
class _EightModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Eight) -> None:
        super().__init__(manager, kind, ir.VectorType(_scalar(kind), LANES))  # type: ignore[no-untyped-call]


def _scalar(kind: Eight) -> Any:
    return ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType()


# ---------------------------------------------------------------------- to and from memory


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Where entry arguments[1] of the array arguments[0] is."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]])


@intrinsic
def load(_: Any, values: Any, at: Any) -> Any:
    """values[at : at + 8]."""
    kind = Eight(values.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = context.get_value_type(kind).as_pointer()
        made = builder.load(builder.bitcast(_place(context, builder, signature, arguments), pointer))
        made.align = kind.dtype.bitwidth // 8
        return made

    return kind(values, at), generate


@intrinsic
def store(_: Any, values: Any, at: Any, eight: Any) -> Any:
    """values[at : at + 8] = eight."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = arguments[2].type.as_pointer()
        place = builder.bitcast(_place(context, builder, signature, arguments), pointer)
        builder.store(arguments[2], place).align = eight.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(values, at, eight), generate


@intrinsic
def prefetch(_: Any, values: Any, at: Any) -> Any:
    """Have values[at] and what stands around it fetched into the cache, to be written soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        place = builder.bitcast(_place(context, builder, signature, arguments), byte)
        shape = ir.FunctionType(ir.VoidType(), [byte, INDEX, INDEX, INDEX])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], shape)
        builder.call(function, [place, INDEX(1), INDEX(3), INDEX(1)])
        return context.get_dummy_value()

    return types.void(values, at), generate


@intrinsic
def spread(_: Any, value: Any) -> Any:
    """Eight times the same number."""
    kind = Eight(value)

    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return _spread(builder, context.get_value_type(kind), arguments[0])

    return kind(value), generate


def _spread(builder: Any, shape: Any, value: Any) -> Any:
    empty = ir.Constant(shape, ir.Undefined)
    first = builder.insert_element(empty, value, INDEX(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(INDEX, LANES), [0] * LANES))


# ---------------------------------------------------------------------- arithmetic


def _teach(symbol: Any, instruction: str) -> None:
    """Have an operator of Python's work on eights."""

    @intrinsic
    def apply(_: Any, one: Any, other: Any) -> Any:
        def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments)

        return one(one, other), generate

    def on_eights(one: Any, other: Any) -> Any:
        return apply(one, other)

    @overload(symbol)
    def chosen(one: Any, other: Any) -> Any:
        return on_eights if isinstance(one, Eight) and one == other else None


_teach(operator.add, "fadd")
_teach(operator.sub, "fsub")
_teach(operator.mul, "fmul")
_teach(operator.truediv, "fdiv")


@intrinsic
def larger(_: Any, one: Any, other: Any) -> Any:
    """The larger of each two; the second where one is not a number."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return one(one, other), generate


@intrinsic
def smaller(_: Any, one: Any, other: Any) -> Any:
    """The smaller of each two; the second where one is not a number."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *arguments), *arguments)

    return one(one, other), generate


@intrinsic
def where_below(_: Any, one: Any, limit: Any, there: Any, elsewhere: Any) -> Any:
    """Each number of `there` where that of `one` is below that of `limit`, and of `elsewhere` where it is not."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *arguments[:2]), *arguments[2:])

    return there(one, limit, there, elsewhere), generate


def _folded(builder: Any, left: Any, fold: Any) -> Any:
    """What is left of eight numbers when halves are folded onto each other until there is one."""
    size = LANES
    while size > 1:
        size //= 2
        nothing = ir.Constant(left.type, ir.Undefined)
        low, high = (
            builder.shuffle_vector(left, nothing, ir.Constant(ir.VectorType(INDEX, size), list(half)))
            for half in (range(size), range(size, 2 * size))
        )
        left = fold(low, high)
    return builder.extract_element(left, INDEX(0))


@intrinsic
def peak(_: Any, eight: Any) -> Any:
    """The largest of the eight."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        def higher(low: Any, high: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", low, high), low, high)

        return _folded(builder, arguments[0], higher)

    return eight.dtype(eight), generate


@intrinsic
def total(_: Any, eight: Any) -> Any:
    """The sum of the eight."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return _folded(builder, arguments[0], builder.fadd)

    return eight.dtype(eight), generate


@intrinsic
def widened(_: Any, eight: Any) -> Any:
    """The same eight in double precision."""
    kind = Eight(types.float64)

    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        if eight.dtype == types.float64:
            return arguments[0]
        return builder.fpext(arguments[0], context.get_value_type(kind))

    return kind(eight), generate


def _elementwise(builder: Any, name: str, *values: Any) -> Any:
    """One of LLVM's functions of each number."""
    kind = values[0].type
    full_name = f"{name}.v{LANES}f{32 if kind.element == ir.FloatType() else 64}"
    shape = ir.FunctionType(kind, [kind] * len(values))
    return builder.call(get_or_insert_function(builder.module, shape, full_name), values)


@intrinsic
def fused(_: Any, one: Any, other: Any, more: Any) -> Any:
    """The product of two and a third added, in one instruction where there is such."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return _elementwise(builder, "llvm.fmuladd", *arguments)

    return more(one, other, more), generate


@intrinsic
def magnitude(_: Any, eight: Any) -> Any:
    """Each without its sign."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return _elementwise(builder, "llvm.fabs", arguments[0])

    return eight(eight), generate


@intrinsic
def root(_: Any, eight: Any) -> Any:
    """The square root of each."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return _elementwise(builder, "llvm.sqrt", arguments[0])

    return eight(eight), generate


# ---------------------------------------------------------------------- powers

# log2(1 + t) = t (a_0 + a_1 t + ...) on [0, 1] to 3e-8, and 2^t = b_0 + b_1 t + ... on [0, 1] to 3e-9:
# Chebyshev fits, good to the last bit or two of float32.
LOGARITHM = (
    1.4426949983876478,
    -0.7213403288295039,
    0.48069547500537646,
    -0.3584284904104408,
    0.2757196618822178,
    -0.1972852119903621,
    0.11305197648785,
    -0.042687185249360486,
    0.00757913571505924,
)
EXPONENTIAL = (
    1.0000000025868891,
    0.6931469286930091,
    0.2402305020452078,
    0.05548042632494658,
    0.009684580453864557,
    0.001238782146560879,
    0.00021877504814256103,
)
MANTISSA, UNIT, BIAS, SHIFT = 0x7FFFFF, 0x3F800000, 127, 23


@jit
def power(base: Any, exponent: Any) -> Any:
    """Each number, which is positive, to one power; a half and one cost little."""
    if exponent == 0.5:
        return root(base)
    if exponent == 1.0:
        return base
    return exponential(logarithm(base) * spread(exponent))


@intrinsic
def logarithm(_: Any, eight: Any) -> Any:
    """The logarithm of each to base 2, in single precision; to base e in double."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        if eight.dtype == types.float64:
            return _elementwise(builder, "llvm.log", arguments[0])
        whole = ir.VectorType(INDEX, LANES)
        bits = builder.bitcast(arguments[0], whole)
        exponent = builder.sub(builder.ashr(bits, _all(whole, SHIFT)), _all(whole, BIAS))
        mantissa = builder.or_(builder.and_(bits, _all(whole, MANTISSA)), _all(whole, UNIT))
        number = arguments[0].type
        part = builder.fsub(builder.bitcast(mantissa, number), _all(number, 1.0))
        return builder.fadd(
            builder.sitofp(exponent, number), builder.fmul(part, _polynomial(builder, LOGARITHM, part))
        )

    return eight(eight), generate


@intrinsic
def exponential(_: Any, eight: Any) -> Any:
    """What `logarithm` undoes."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        if eight.dtype == types.float64:
            return _elementwise(builder, "llvm.exp", arguments[0])
        whole, number = ir.VectorType(INDEX, LANES), arguments[0].type
        below = _elementwise(builder, "llvm.floor", arguments[0])
        raised = builder.add(builder.fptosi(below, whole), _all(whole, BIAS))
        scale = builder.bitcast(builder.shl(raised, _all(whole, SHIFT)), number)
        return builder.fmul(scale, _polynomial(builder, EXPONENTIAL, builder.fsub(arguments[0], below)))

    return eight(eight), generate


def _all(shape: Any, value: Any) -> Any:
    return ir.Constant(shape, [value] * LANES)


def _polynomial(builder: Any, coefficients: tuple[float, ...], argument: Any) -> Any:
    """The constant first; by halves (Estrin's scheme), which need not wait for one another as Horner's terms do."""
    terms = [_all(argument.type, float(np.float32(coefficient))) for coefficient in coefficients]
    while len(terms) > 1:
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [
            _elementwise(builder, "llvm.fmuladd", high, argument, low)
            for low, high in zip(terms[::2], terms[1::2], strict=False)
        ] + odd
        argument = builder.fmul(argument, argument)
    return terms[0]
