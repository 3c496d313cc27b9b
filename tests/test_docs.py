"""The code blocks of the documentation run, in their order, and show what the text says."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.S)


def test_bring_your_own_domain(capsys):
    names: dict[str, object] = {}
    for block in blocks("domains.md"):
        exec(compile(block, "domains.md", "exec"), names)
    before, after = map(float, capsys.readouterr().out.split()[-2:])
    assert 0.64 < before < 0.70
    assert after > 0.75
    assert set(names["restored"]) <= set(names["all_notes"])


@pytest.mark.parametrize("module", ["", ".kernels", ".rivals", ".datasets", ".figures", ".photographs"])
def test_every_public_class_and_function_has_an_example(module):
    """In its own text; errors apart."""
    package = import_module(f"kernelbp{module}")
    public = {name: getattr(package, name) for name in package.__all__}
    shown = {name: inspect.getdoc(one) or "" for name, one in public.items() if inspect.isroutine(one)}
    shown |= {
        name: vars(one).get("__doc__") or ""
        for name, one in public.items()
        if inspect.isclass(one) and not issubclass(one, Exception)
    }
    assert shown
    assert [name for name, text in shown.items() if ">>>" not in text] == []
