"""Client bytes to session commands and back: one engine per protocol, none of which touches a socket."""
