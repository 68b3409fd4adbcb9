"""Families of environments that other libraries bring."""
