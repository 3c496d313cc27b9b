"""The groups of lines, and running them one after another with a bar that says how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from kernelbp.speed.rows import Row
from kernelbp.speed.settings import FULL, Settings

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["GROUPS", "Group", "measure"]

MOST_OF_A_GROUP = 0.95
"""Share of a group's part of the bar that is filled before it is done."""


@dataclass(frozen=True)
class Group:
    """Lines that belong together.

    Attributes
    ----------
    name : to choose it by
    title : what it shows
    home : module and function under ``kernelbp.speed``, loaded when it is run
    seconds : it takes in a quick and in a full run, about: parts of the progress bar
    """

    name: str
    title: str
    home: str
    seconds: tuple[float, float]

    def rows(self, settings: Settings) -> Iterator[Row]:
        """Measure, a row at a time."""
        module, function = self.home.split(":")
        for row in getattr(import_module(f"kernelbp.speed.{module}"), function)(settings):
            yield replace(row, group=self.name)


GROUPS = (
    Group("iteration", "One iteration against sgemm of the same multiply-adds", "iteration:sgemm", (12, 240)),
    Group("plain", "Compiled against plain NumPy", "iteration:plain", (2, 6)),
    Group("threads", "Two threads against one", "iteration:threads", (2, 40)),
    Group("updates", "Constant against linear and full updates", "updates:rows", (14, 60)),
    Group("pairs", "An iteration does not depend on the number of pairs", "growth:pairs", (6, 30)),
    Group("edges", "An iteration is linear in edges", "growth:edges", (3, 60)),
    Group("learning", "Learning, stage by stage", "learning:rows", (6, 60)),
    Group("sunset", "The paper's sunset with defaults", "sunset:rows", (4, 15)),
    Group("discrete", "Discrete BP against a NumPy loop", "discrete:numpy_loop", (4, 15)),
    Group("peers", "Discrete BP against other libraries", "discrete:libraries", (1, 60)),
    Group("latency", "Fresh processes", "processes:latency", (22, 25)),
    Group("memory", "Peak memory of whole processes", "processes:memory", (5, 200)),
    Group("beliefs", "Reading beliefs against one iteration", "beliefs:reading", (7, 250)),
    Group("agreement", "The same beliefs, whatever the threads", "beliefs:agreement", (2, 4)),
)
"""In the order they are run."""


def measure(
    settings: Settings, groups: Sequence[Group] = GROUPS, console: Console | None = None
) -> list[Row]:
    """Run groups one after another.

    Parameters
    ----------
    settings : Settings
    groups : sequence of Group
    console : rich Console, optional
        Where a progress bar with the time left is shown; none without.
    """
    rows: list[Row] = []
    with _bar(console, [group.seconds[settings.sizes is FULL] for group in groups]) as (begin, advance):
        for group in groups:
            begin(group.title)
            for row in group.rows(settings):
                rows.append(row)
                advance(f"{group.title}: {row.what}")
    return rows


class _bar:
    """A progress bar in parts of unequal length, filled by the clock within a part."""

    def __init__(self, console: Console | None, parts: Sequence[float]) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._parts, self._number = parts, -1
        self._started = self._part_started = time.perf_counter()
        self._bar = Progress(
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=console is None,
        )
        self._task = self._bar.add_task("", total=sum(parts), left="")

    def __enter__(self) -> tuple[Callable[[str], None], Callable[[str], None]]:
        self._bar.start()
        return self._begin, self._show

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def _begin(self, text: str) -> None:
        self._number += 1
        self._part_started = time.perf_counter()
        self._show(text)

    def _show(self, text: str) -> None:
        """The pace so far, against what parts were thought to take, says how long the rest will."""
        now, done = time.perf_counter(), sum(self._parts[: self._number])
        pace = (self._part_started - self._started) / done if done else 1.0
        part = self._parts[self._number]
        spent = min((now - self._part_started) / max(part * pace, 1e-9), MOST_OF_A_GROUP)
        completed = done + spent * part
        left = (sum(self._parts) - completed) * pace
        shown = f"about {left / 60:.0f} min left" if left > 90 else f"about {left:.0f} s left"
        self._bar.update(self._task, completed=completed, description=text, left=shown)
