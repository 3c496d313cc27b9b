"""The code blocks of the documentation run, in their order, and show what the text says."""

from __future__ import annotations

import re
from pathlib import Path

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
