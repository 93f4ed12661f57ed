"""Services: arguments of each engine and mode, units rendered from templates."""
