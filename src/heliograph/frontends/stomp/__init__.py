"""STOMP 1.0, 1.1 and 1.2, for clients of any language (X1)."""
