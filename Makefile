# Every target sets itself up in .venv, once, from nothing but python3 (3.11 or newer) with pip and venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# One BLAS thread per test worker: the workers already fill the cores.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help demo test check bench accuracy reproduce setup clean

help:
	@echo "make demo      denoise the paper's sunset"
	@echo "make test      run the tests and the examples in the docstrings"
	@echo "make check     lint, check the formatting and the types"
	@echo "make bench     measure speed: ratios to the machine's own matrix product (BENCH=--quick: two minutes)"
	@echo "make accuracy  measure accuracy on the paper's problems"
	@echo "make reproduce rerun the five experiments of the paper on data made or bundled, hours (REPRODUCE=--quick: ten minutes)"
	@echo "make clean     remove .venv, caches and built packages"
	@echo
	@echo "The first target run makes .venv and installs into it. PYTHON=/path/to/python picks the Python for it."

demo: $(READY)
	$(BIN)/python examples/denoise_sunset.py

test: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

bench: $(READY)
	$(BIN)/kernelbp bench $(BENCH)

accuracy: $(READY)
	$(BIN)/python benchmarks/run.py

reproduce: $(READY)
	for name in denoising approximation depth protein papers; do $(BIN)/kernelbp reproduce $$name $(REPRODUCE) || exit 1; done

setup: $(READY)

# An existing .venv is kept and brought up to date. It is its Python, not $(PYTHON), that has to be new enough then.
$(READY): pyproject.toml
	@python="$(PYTHON)"; if [ -x $(BIN)/python ]; then python=$(BIN)/python; fi; \
	command -v "$$python" >/dev/null || { \
		echo "kernelbp needs Python 3.11 or newer, and there is no '$$python': make PYTHON=/path/to/python ..." >&2; exit 1; }; \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "kernelbp needs Python 3.11 or newer, and '$$python' is $$("$$python" --version 2>&1): make PYTHON=/path/to/python ..." >&2; exit 1; }
	@echo "Setting up $(VENV): installing kernelbp and what it needs (once, a minute or two)"
	@[ -x $(BIN)/python ] || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name .git -prune -o -type d -name __pycache__ -exec rm -rf {} +
