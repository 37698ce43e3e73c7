"""Environments of jobs: resolved at submission, registered versions, and the results of builds."""
