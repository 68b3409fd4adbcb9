"""Families of toy control: one file each, beside the plane that they share."""
