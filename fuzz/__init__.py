"""Every parser that outsiders' bytes reach, under bytes that nobody would think of.

    make fuzz                     all of them, a minute each
    make fuzz MINUTES=24 ARGS="--processes 2"
                                  until each has had 24 minutes of a processor; what it had before counts
    python -m fuzz stomp --seconds 600

`targets` has one function for each: it takes bytes, and whatever fault it lets through is a finding. `corpus/NAME/`
has where to begin, and what was found once. `tests/unit/test_fuzz_targets.py` tries the corpus, and what is near
it, in every run of the tests.
"""
