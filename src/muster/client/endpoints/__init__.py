"""Endpoints: calls about them, what a deployment's file becomes, asking one."""
