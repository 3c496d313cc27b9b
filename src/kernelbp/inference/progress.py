"""A progress bar that costs nothing when it is not shown."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

__all__ = ["Progress"]


class Progress:
    """``with Progress("learning", 5, shown=True) as bar: bar.advance("what is being done")``."""

    def __init__(self, title: str, total: int, *, shown: bool) -> None:
        self._title, self._total, self._shown = title, total, shown
        self._bar: RichProgress | None = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self._shown:
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._total, note="")
        return self

    def advance(self, note: str = "") -> None:
        """One step done."""
        if self._bar is not None:
            self._bar.update(self._task, advance=1, note=note)

    def finish(self, note: str) -> None:
        """Done before all steps were needed."""
        if self._bar is not None:
            done = self._bar.tasks[0].completed
            self._bar.update(self._task, total=done, note=note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
