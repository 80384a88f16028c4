"""The client side of a measurement, in a process of its own.

The process connects, says `ready`, and (a producer) waits for the word to go; when it is done it writes its
outcome as one line of JSON. Nothing but those two lines goes to standard output.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from benchmarks.peers import peer_named
from benchmarks.workloads import Plan


class Gate:
    """The starting line: a client passes it once it is connected."""

    def ready(self) -> None:
        """Tell the benchmark that this client is connected and listening."""
        print("ready", flush=True)

    def wait_for_go(self) -> None:
        """Tell the benchmark that this client is connected, and wait until everybody is."""
        self.ready()
        sys.stdin.readline()


def main(plan_json: str) -> None:
    """Do what the plan says and report."""
    plan = Plan.from_json(plan_json)
    peer = peer_named(plan.peer)
    act = peer.produce if plan.role == "produce" else peer.consume
    print(json.dumps(asdict(act(plan, Gate()))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
