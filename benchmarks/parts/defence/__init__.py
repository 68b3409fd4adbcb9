"""The game of CyberDefence once more in plain Python, to hold the family and its speed against."""
