"""A fitted model in one file: numbers and text, nothing that can run.

A model file (``.kbp``) is a zip archive of uncompressed members, so that any tool can look inside:

``model.json``
    the format's name and version, the constructor's settings, what was learned, the kernels as
    `kernelbp.kernels.to_spec` writes them, and for every array its dtype, shape and SHA-256;
``arrays/0.npy``, ``arrays/1.npy``, ...
    the arrays, in NumPy's format, never pickled.

The archive's comment holds the SHA-256 of ``model.json``. These sums find damage, not forgery: whoever can
write the file can write the sums. So nothing in a file is trusted: it cannot name code (records and kernels
are looked up in fixed tables), it cannot claim more memory than it takes on the disk, and what it holds is
checked for consistency before a model is returned.

In ``model.json`` text, numbers, true, false and null stand for themselves; everything else is a *node*, an
object with one key that says what it is: ``{"array": 3}``, ``{"tuple": [...]}``, ``{"mapping": [[key, value],
...]}``, ``{"record": ["Moments", {...}]}``, ``{"graph": {"nodes": [...], "edges": [...], ...}}`` for a networkx
graph, and so on. A new field of a record is stored without a change here; a new record needs a line in
`kernelbp.storage.fields.RECORDS`.

========= ========================================================================
`models`  the two ways in: `save_model` and `load_model`
`checks`  what must hold of a model before it is written and after it is read
`writing` objects to nodes
`reading` nodes to objects
`fields`  the records a file may hold, and the types of their fields
`files`   the archive on the disk
`limits`  how large everything may be, and how a file is refused
========= ========================================================================
"""

from __future__ import annotations

from kernelbp.storage.models import load_model, save_model

__all__ = ["load_model", "save_model"]
