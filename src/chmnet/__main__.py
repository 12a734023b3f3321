"""``python -m chmnet``."""

from chmnet.cli.main import main

main()
