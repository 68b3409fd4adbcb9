"""What a run reads and writes on the disk, and what it must never touch there."""
