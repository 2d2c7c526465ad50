"""The command line, `nncfx`: the whole job from one file, and a look into what it made."""
