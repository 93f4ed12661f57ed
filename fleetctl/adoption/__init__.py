"""Hosts that somebody set up by hand, as inventory files: what was seen there in, files out. Pure but for writing."""
