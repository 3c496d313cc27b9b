"""The paper's experiments, each one readable page: load, learn, infer, score, draw.

``kernelbp reproduce NAME`` runs one. A page has a function ``run(study, ...)`` that splits the work into cases, has the
study finish them (what is finished is kept on the disk, and `--resume` goes on from there), and returns a `Report`.
"""

from __future__ import annotations

from kernelbp.experiments.report import Claim, Picture, Report, Table
from kernelbp.experiments.study import Case, Options, Result, Study

__all__ = ["Case", "Claim", "Options", "Picture", "Report", "Result", "Study", "Table"]
