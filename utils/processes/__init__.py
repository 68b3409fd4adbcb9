"""The processes of a run: how they are marked, found and ended, and the streams that they have."""
