"""A run of an experiment as cases, each kept on the disk when it is finished."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import kernelbp
from kernelbp.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Case", "Options", "Result", "Row", "Study"]

Row = Mapping[str, str | float | int | bool | None]
"""One line of a table, by the names of its columns."""

FOLDER = "finished"
"""Under the folder of results: one file a case, and what the run was asked for."""
ASKED = "run.json"
EDITION = 6
"""Of what cases hold; raised whenever a case of the same name comes to mean something else."""
UNFIT = re.compile(r"[^A-Za-z0-9.]+")
"""Letters of a case's name that stay out of the name of its file."""


@dataclass(frozen=True)
class Options:
    """What every experiment is asked.

    Attributes
    ----------
    out : folder for the results, made if need be
    data : folder or file of real data; None for the default that needs none
    quick : smaller sizes and fewer repetitions
    seed : of all random numbers
    resume : go on from what an interrupted run of the same settings has finished
    """

    out: Path
    data: Path | None = None
    quick: bool = False
    seed: int = 0
    resume: bool = False


@dataclass(frozen=True)
class Result:
    """What a case found.

    Attributes
    ----------
    rows : lines of a table: text, numbers, true, false or None
    arrays : what the pictures are drawn from, by name
    """

    rows: Sequence[Row] = ()
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A part of an experiment that stands for itself.

    Attributes
    ----------
    name : no two cases of a study share one; shown beside the progress bar
    run : does the work
    seconds : it takes, about: its part of the progress bar
    """

    name: str
    run: Callable[[], Result]
    seconds: float = 1.0


class Study:
    """One run: where its results go, what it was asked, and what is finished.

    Parameters
    ----------
    name : str
        Of the experiment.
    options : Options
    console : rich Console, optional
        Where a progress bar with the time left is shown; none without.
    extras : mapping from name to value, optional
        What this experiment is asked beyond `options`; text, numbers, true, false, paths or None.

    Raises
    ------
    InputError
        If the folder cannot be made, or `resume` is asked for a run of other settings.

    Examples
    --------
    >>> import tempfile
    >>> options = Options(Path(tempfile.mkdtemp()))
    >>> study = Study("squares", options)
    >>> cases = [Case(f"square of {n}", lambda n=n: Result([{"n": n, "square": n * n}])) for n in (2, 3)]
    >>> [row["square"] for result in study.finish(cases).values() for row in result.rows]
    [4, 9]
    """

    def __init__(
        self,
        name: str,
        options: Options,
        console: Console | None = None,
        extras: Mapping[str, str | float | int | bool | Path | None] | None = None,
    ) -> None:
        self.name, self.options, self.console = name, options, console
        self.extras = dict(extras or {})
        self._folder = options.out / FOLDER
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"out: cannot make the folder {self._folder}: {error}") from error
        self._begin()

    @property
    def asked(self) -> dict[str, Any]:
        """All that decides the results: two runs with the same can share cases."""
        options = self.options
        given = {"data": options.data, **self.extras}
        return {
            "experiment": self.name,
            "kernelbp": kernelbp.__version__,
            "edition": EDITION,
            "quick": options.quick,
            "seed": options.seed,
            **{name: str(v.resolve()) if isinstance(v, Path) else v for name, v in given.items()},
            "files": [_digest(place, options.out) for place in given.values() if isinstance(place, Path)],
        }

    def rng(self, *which: int) -> np.random.Generator:
        """Random numbers of this run's seed; other numbers `which`, other random numbers."""
        return np.random.default_rng([self.options.seed, *which])

    def finish(self, cases: Sequence[Case]) -> dict[str, Result]:
        """Run all cases that are not finished yet, one after another.

        Returns
        -------
        dict from the name of a case to its Result, in the order of `cases`
        """
        taken: dict[str, str] = {}
        for case in cases:
            file = _file_name(case.name)
            if file in taken:
                raise InputError(
                    f"cases: {taken[file]!r} and {case.name!r} would be kept in the same file; expected names that "
                    "differ in Latin letters or digits"
                )
            taken[file] = case.name
        kept = {case.name: self._kept(case) for case in cases} if self.options.resume else {}
        found: dict[str, Result] = {}
        with _bar(self.console, self.name, cases, kept) as done:
            for case in cases:
                result = kept.get(case.name)
                if result is None:
                    done.begin(case.name)
                    result = _plain(case.run())
                    self._keep(case, result)
                    done.end(case.seconds)
                found[case.name] = result
        return found

    def _begin(self) -> None:
        path = self._folder / ASKED
        # Only files this class has written.
        kept = [*self._folder.glob("*.case.json"), *self._folder.glob("*.case.npz")]
        if kept:
            self._compare(path)
        if not self.options.resume:
            for old in kept:
                old.unlink()
        _write(path, json.dumps(self.asked, indent=1).encode())

    def _compare(self, path: Path) -> None:
        """What is finished of a run of other settings is neither gone on with nor thrown away."""
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            before = None
        for name, value in self.asked.items():
            if not isinstance(before, dict) or before.get(name) != value:
                given = before.get(name) if isinstance(before, dict) else "unreadable"
                what = "resume" if self.options.resume else "out"
                raise InputError(
                    f"{what}: the run kept in {self.options.out} had {name} {given!r}, this one has {value!r}; "
                    "give another --out for other settings, or delete that folder if it is not needed"
                )

    def _keep(self, case: Case, result: Result) -> None:
        stem = self._folder / _file_name(case.name)
        if result.arrays:
            temporary = stem.with_name(stem.name + ".part.npz")
            held: dict[str, Any] = dict(result.arrays)
            np.savez_compressed(temporary, **held)
            os.replace(temporary, stem.with_name(stem.name + ".case.npz"))
        # Last: with this file a case is finished.
        text = json.dumps({"rows": list(result.rows), "arrays": sorted(result.arrays)})
        _write(stem.with_name(stem.name + ".case.json"), text.encode())

    def _kept(self, case: Case) -> Result | None:
        """What an earlier run has left of a case; None if nothing, or nothing that can be read."""
        stem = self._folder / _file_name(case.name)
        try:
            content = json.loads(stem.with_name(stem.name + ".case.json").read_text(encoding="utf-8"))
            arrays: dict[str, NDArray[Any]] = {}
            if content["arrays"]:
                with np.load(stem.with_name(stem.name + ".case.npz"), allow_pickle=False) as held:
                    arrays = {name: held[name] for name in content["arrays"]}
            return Result([dict(row) for row in content["rows"]], arrays)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None


class _bar:
    """Cases as parts of a progress bar, by the seconds each is thought to take."""

    def __init__(
        self,
        console: Console | None,
        title: str,
        cases: Sequence[Case],
        kept: Mapping[str, Result | None],
    ) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        left = [case.seconds for case in cases if kept.get(case.name) is None]
        self._bar = Progress(
            TextColumn(title),
            BarColumn(),
            TextColumn("{task.percentage:.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            # A pace over the whole run: cases differ too much for that of the last ones.
            TimeRemainingColumn(compact=False),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=console is None,
            speed_estimate_period=24 * 3600.0,
        )
        self._task = self._bar.add_task("", total=sum(left) or 1.0)

    def __enter__(self) -> _bar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def begin(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def end(self, seconds: float) -> None:
        self._bar.update(self._task, advance=seconds)


def _digest(data: Path, out: Path) -> str:
    """A word that changes with the names, the sizes and the times of the files of a folder, or of one file.

    Results that are written into the folder of the data are no data.
    """
    places = data.rglob("*") if data.is_dir() else [data]
    results = out.resolve()
    files = sorted(path for path in places if path.is_file() and not path.resolve().is_relative_to(results))
    told = [(str(path.relative_to(data)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _file_name(name: str) -> str:
    return UNFIT.sub("-", name).strip("-")


def _plain(result: Result) -> Result:
    """Rows as JSON can hold them, so that a case just run and one read back are the same."""
    return Result([{name: _cell(value) for name, value in row.items()} for row in result.rows], result.arrays)


def _cell(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _write(path: Path, content: bytes) -> None:
    """All or nothing: an interrupted run leaves no half a file."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    os.replace(temporary, path)
