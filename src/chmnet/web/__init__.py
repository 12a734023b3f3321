"""The page to play with, and the HTTP API behind it (``chmnet serve``)."""
