"""The inside of the manager: stepping, recovery after faults, and the checks of what is asked of it."""
