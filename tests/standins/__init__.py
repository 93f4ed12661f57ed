"""Small distributions with the real names, versions, modules and SONAMEs of a GPU stack, built on the spot."""
