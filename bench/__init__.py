"""Measures holdfast against the floor of this machine, in the same run. See README.md."""
