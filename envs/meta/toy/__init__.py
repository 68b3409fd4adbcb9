"""Toy control, a family a file."""
