"""MLflow's REST protocol on Muster's own tables: experiments, runs, artifacts, logged and registered models."""
