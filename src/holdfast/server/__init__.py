"""holdfast for other programs: views and methods over an open runtime."""
