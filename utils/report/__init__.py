"""Readers of run folders: the picture of one run, the comparison of several; training knows none of them."""
