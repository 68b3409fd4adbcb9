"""Measurements of environments with several agents."""
