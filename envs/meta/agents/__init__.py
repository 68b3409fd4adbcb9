"""Families in which several agents act."""
