"""The command line: one small file for each command. Nothing heavy is imported before a command runs."""

from chmnet.cli.app import main

__all__ = ["main"]
