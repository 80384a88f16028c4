"""The shells: the embedded server, its listeners, configuration and users. They own sockets and files."""
