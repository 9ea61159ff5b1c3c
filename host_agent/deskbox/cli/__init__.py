"""The command `deskbox`: one module for each group of commands, all of them thin over the Python API."""

from deskbox.cli.app import app, main

__all__ = ["app", "main"]
