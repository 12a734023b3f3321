"""``python -m chmnet``."""

from chmnet.cli import main

main()
