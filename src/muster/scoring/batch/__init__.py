"""Batch scoring: rank 0 hands out mini-batches and keeps their results, every rank holds a model."""
