"""The command line, `nncfx`: runs tasks from one file, and inspects their results."""
