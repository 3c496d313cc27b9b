r"""The log partition function: Bethe's estimate, or the tree-reweighted upper bound.

For the model with node potentials :math:`\pi_s e_s` (marginal times evidence) and edge potentials
:math:`\psi_{st}`, at a fixed point with messages m and edge weights :math:`\rho`,

.. math::
   \log Z \approx \sum_s \log Z_s + \sum_{(s,t)} \rho_{st}\,(\log Z_{st} - \log Z_s - \log Z_t),

where :math:`Z_s = \sum \pi_s e_s \prod_u m_{us}^{\rho_{us}}` and :math:`Z_{st}` is the same for a pair, with the two
messages between them taken out. It does not depend on how messages are scaled. Learned relations have
:math:`\psi_{st} = (P_{st} / P_s P_t)^{\rho_{st}}`, known ones the potential itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.inference.update import State, log_magnitude

if TYPE_CHECKING:
    from kernelbp.inference.beliefs import Source

__all__ = ["log_partition", "node_totals"]

Matrix = NDArray[np.float64]


def log_partition(source: Source) -> float:
    """Evaluate the formula above at the messages as they stand."""
    state, wiring = source.state, source.wiring
    totals, log_nodes = [], []
    for variable, name in enumerate(wiring.variables):
        total = node_totals(state, wiring.start[variable], variable)
        totals.append(total)
        log_nodes.append(_log_sum(total + np.log(source.operators.support_weights(name))))
    known = [part.nodes for part in source.evidence.fixed]
    for logs, nodes in zip(log_nodes, known, strict=True):
        logs[nodes] = 0.0
    result = float(sum(logs.sum() for logs in log_nodes)) + state.log_scale
    # Each edge once: the message of the two with the smaller number.
    numbers = np.flatnonzero(np.arange(wiring.n_messages) < wiring.reverse)
    for operator in np.unique(wiring.operator[numbers]).tolist():
        mine = numbers[wiring.operator[numbers] == operator]
        target, sender = int(wiring.target_variable[mine[0]]), int(wiring.source_variable[mine[0]])
        at_target = totals[target][wiring.target[mine]] - _logs(state.messages[target][wiring.row[mine]])
        at_source = totals[sender][wiring.source[mine]] - _logs(
            state.messages[sender][wiring.row[wiring.reverse[mine]]]
        )
        high = at_source.max(axis=1, keepdims=True)
        sent = state.operators[operator].apply(np.exp(at_source - high), wiring.edge[mine])
        prior = np.log(source.operators.support_weights(wiring.variables[target]))
        log_pair = _log_sum(at_target + prior + _logs(np.asarray(sent, dtype=np.float64))) + high[:, 0]
        rho = state.weights[target][wiring.row[mine]].astype(np.float64) if state.weights else 1.0
        single = log_nodes[target][wiring.target[mine]] + log_nodes[sender][wiring.source[mine]]
        result += float((rho * (log_pair - single)).sum())
        relation = wiring.operators[operator][0]
        result += float(source.operators.log_scales(relation, source.graph.readings, wiring.edge[mine]).sum())
    return result


def node_totals(state: State, start: NDArray[np.intp], variable: int) -> Matrix:
    """Log of evidence times all messages arriving at each node, to their weights, (nodes, q)."""
    total = _logs(state.evidence[variable])
    arriving = _logs(state.messages[variable])
    if state.weights:
        arriving *= state.weights[variable][:, None]
    some = np.flatnonzero(np.diff(start))
    if len(some):
        total[some] += np.add.reduceat(arriving, start[some], axis=0)
    return total


def _logs(values: NDArray[Any]) -> Matrix:
    return log_magnitude(values.astype(np.float64))


def _log_sum(logs: Matrix) -> Matrix:
    high = logs.max(axis=1)
    return high + np.log(np.exp(logs - high[:, None]).sum(axis=1))
