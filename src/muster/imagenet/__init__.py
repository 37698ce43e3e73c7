"""ImageNet from its original archives into packed shards: verified, in parallel, resumable. Needs only Pillow."""
