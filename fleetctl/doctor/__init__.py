"""Facts to findings; here the log signatures that end a wait at once."""
