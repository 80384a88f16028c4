"""Heliograph's own protocol: length-prefixed frames that carry whole blocks
(docs/reference/native-protocol.md)."""
