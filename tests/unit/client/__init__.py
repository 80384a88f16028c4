"""The client library: its parts without a socket, and with a scripted peer at the other end."""
