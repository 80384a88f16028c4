"""Queues and topics as state machines: what waits, what is handed out to whom, what is done."""
