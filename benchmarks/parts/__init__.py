"""What the benchmark commands are made of."""
