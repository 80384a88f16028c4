"""What a node must not forget: a log in segments, snapshots that bound its replay, and reading back.

`records`, `recovery` and `segments` decide and touch nothing; `files`, `directory`, `replay`, `reader`,
`snapshots` and `workers` do the input and output. docs/reference/journal-format.md has the bytes,
docs/decisions/0002-journal.md the reasons.
"""
