"""The API under /api/v1, metrics and health: a table of routes, and the handlers that answer them (X3)."""
