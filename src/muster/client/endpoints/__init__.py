"""Endpoints: calls about them, from a deployment's file to its job, requests to one."""
