"""Units and the services manager that carries them out."""
