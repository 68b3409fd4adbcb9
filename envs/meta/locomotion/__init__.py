"""Robots on MuJoCo, a family a file."""
