"""What is generated for the pages of docs/: lists of options and environments, and pictures."""
