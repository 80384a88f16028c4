"""WebSocket: STOMP and MQTT for browsers (X1)."""
