"""Faces to other libraries: their environments on our contract, and ours on theirs."""
