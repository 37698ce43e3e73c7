"""What can be put into a rank's process before the user's code, a module each: see `muster.runtime.hook`."""
