"""MQTT 3.1.1 and 5, for clients of any language (X1)."""
