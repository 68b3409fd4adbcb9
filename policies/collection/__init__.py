"""The one loop that steps environments, and who acts in it."""
