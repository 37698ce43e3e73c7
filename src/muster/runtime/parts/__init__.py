"""Parts that run in a rank's processes before the user's code, one module each: see `muster.runtime.hook`."""
