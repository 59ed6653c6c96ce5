"""The command line. `main.py` is the program; each module beside it holds one group of commands."""
