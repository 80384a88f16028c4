"""Store and forward (U7): an agent in the client that keeps what is sent, and passes it on when the server is there.

`records` and `ledger` decide and touch nothing; `files` is the folder, `writer` fills it, `forwarder` empties it
towards the server, and `agent` is what the rest of the library sees. docs/decisions/0006-store-and-forward.md has the
reasons and the invariants.
"""
