"""Waiting runs: the queue, what is learned for it, and the forecasts of their start."""
