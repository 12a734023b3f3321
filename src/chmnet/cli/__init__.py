"""The command line: one small file for each command. Nothing heavy is imported before a command runs."""
