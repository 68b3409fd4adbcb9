"""Layers that agents and memories share."""
