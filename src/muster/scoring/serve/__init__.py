"""Real-time scoring: a listener that stays, replicas behind it that may die, requests answered by a model."""
