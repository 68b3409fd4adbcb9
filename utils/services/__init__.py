"""Services that record a run: what they have in common, and each in a file of its own."""
