"""Families on grids, and tests of memory: one file each, beside the floor plans and rooms that they share."""
