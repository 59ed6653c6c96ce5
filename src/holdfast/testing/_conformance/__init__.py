"""The promises of `holdfast.journal.log`, one module for each kind; `journals.py` puts them together."""
