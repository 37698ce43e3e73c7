"""Runs: submitted, attempted, judged, shown and followed."""
