"""Lets `python -m kernelbp` do what the `kernelbp` command does."""

from kernelbp.cli import app

if __name__ == "__main__":
    app(prog_name="kernelbp")
