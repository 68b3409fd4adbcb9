"""The one loop that steps environments, and what acts in it."""
