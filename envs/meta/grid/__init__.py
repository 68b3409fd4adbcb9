"""Grids and tests of memory, a family a file."""
