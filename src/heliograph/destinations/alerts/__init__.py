"""The engine of alert channels (A1–A7): who gets which alert, in what order, and until when.

    channel.py        the one door: facts and time in, effects out
    live.py           live alerts: ten levels, by id, by exact destination, in chunks for sweeps
    subscribers.py    who gets alerts; which topics lead to whom
    pattern_index.py  from a text to the patterns that match it
    sweeping.py       a newcomer's way through what is live
    handing.py        what goes to whom, and what comes back of it
    publishing.py     alerts and acknowledgements as they come in
    ending.py         cancelled, expired, withdrawn
    trail.py          the life of an alert, for who asks
    records.py        what is written down
    replay.py         records and snapshots back to a channel
    union.py          what two parts of a cluster have, as one

Decisions and invariants: docs/decisions/0020-alerts.md.
"""
