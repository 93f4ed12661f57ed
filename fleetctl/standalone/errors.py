"""What ends the server or a conversion before it serves: one line for the operator, exit status 2."""

from __future__ import annotations


class StartError(Exception):
    """A file, argument or port that cannot be used; the message names it and says what to do."""
