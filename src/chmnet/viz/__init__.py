"""Pictures of results: functions that take results and return pictures. No files, no models."""

from chmnet.viz.matches import draw_matches

__all__ = ["draw_matches"]
