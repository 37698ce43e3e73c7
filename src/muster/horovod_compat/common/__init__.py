"""Where scripts find Horovod's exceptions."""
