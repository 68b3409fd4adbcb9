"""Families of families: one agent for the tasks of several families at once."""
