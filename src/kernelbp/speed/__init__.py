"""How fast the library is: ratios to something fixed, each measured in the same run (``kernelbp bench``).

A group of lines is one function that yields `Row` after `Row`; `GROUPS` lists them in the order they are run and
loads each when it is. What a group measures is bounded by `Sizes`: `FULL`, `QUICK`, or any other for a test.
"""

from kernelbp.speed.rows import Row, save_csv, table
from kernelbp.speed.run import GROUPS, Group, measure
from kernelbp.speed.settings import FULL, QUICK, Settings, Sizes

__all__ = ["FULL", "GROUPS", "QUICK", "Group", "Row", "Settings", "Sizes", "measure", "save_csv", "table"]
