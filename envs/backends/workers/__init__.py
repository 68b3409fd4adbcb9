"""Worker processes: how they start, what they are sent, and how rows come back."""
