"""What members say about themselves: who they are, that they are alive, and who no longer counts.

These words travel like any other command (codes from 128), and the views of a cluster are made of them
(`cluster/views.py`). The bus itself gives them no meaning.
"""

from __future__ import annotations

from typing import Final

import msgspec

from heliograph.bus.commands import Command
from heliograph.bus.interface import Incarnation, Place, Ring, Stamp

DIGEST_BYTES: Final = 16

MESSAGE_MANAGER: Final = "message-manager"
CLIENT_MANAGER: Final = "client-manager"


class Company(msgspec.Struct, frozen=True, array_like=True):
    """Who wants to be in a view together.

    `ring` and `listed` are the bus's configuration; `members`, sorted, are those of the listed that count. Naming
    them by incarnation makes it impossible to answer for somebody who came later to the same place.
    """

    ring: Ring
    listed: tuple[Place, ...]
    members: tuple[Incarnation, ...]


class NodeState(msgspec.Struct, frozen=True, array_like=True):
    """A node of the process, as it says of itself. The views carry it and give it no meaning but to the role."""

    name: str
    role: str
    seniority: int = 0
    partition: str = ""  # its partition state
    epoch: int = 0  # of the configuration it knows
    digest: bytes = b""  # of that configuration
    store: bytes = b""  # id of its journal
    marks: tuple[tuple[bytes, int], ...] = ()  # how far it has heard each sender
    lineage: int = 0  # number of the last view in which it had the log of the primary
    lineage_id: bytes = b""  # and its id
    index: int = 0  # how far its log goes
    chain: int = 0
    is_synchronised: bool = False  # it has the primary's log as far as that was delivered
    is_leading: bool = False
    is_leaving: bool = False  # it wants somebody else to lead
    address: str = ""  # where others catch up from it
    cluster: bytes = b""  # identity of the cluster that its data is of
    expected: int = 1  # message managers that must be there at the very first start
    essentials: tuple[
        tuple[str, str], ...
    ] = ()  # settings that must be the same on every node, as they are here
    reach: tuple[int, int] = (0, 0)  # index and chain of its log where it left the unrestricted lineage
    record: bytes = b""  # the newest unrestricted view that it has on disk
    enrolment: bytes = b""  # who belongs to the sub-cluster, as is settled
    proposed: bytes = b""  # and as is proposed
    reached: bytes = (
        b""  # its last view, if it is unrestricted and all are there without whom no other can be
    )
    elders: tuple[bytes, ...] = ()  # of that: stores that were unrestricted before it
    clients: tuple[bytes, ...] = ()  # client managers of its last view by incarnation, the most senior first
    is_waiting: bool = False  # it does not lead yet without those who may know more, be it restricted
    has_branches: bool = False  # what it did in another part is set aside, and may not be in the log yet
    log_level: int = 1  # of the views in which its log was written: who knows less cannot read it


class Hello(Command):
    """An answer to a configuration (PROTOCOL 2): I would be in a view with this company, and this is my past."""

    company: Company
    last: Stamp  # the view that I installed last
    number: int  # the highest number of a view that I know
    together: tuple[Incarnation, ...]  # the `with` of PROTOCOL: in every configuration since that view
    frames: bytes  # hash of the frames delivered since that view, up to the configuration that is answered
    way: bytes  # digest of who came to `last` straight from the view before it, this member among them
    passage: bytes  # hash of the frames delivered from there until `last` was installed
    sequence: int  # of the last frame of my own that was delivered to me
    nodes: tuple[NodeState, ...]
    level: int = 1  # how much of what can be said its sender knows (`wire.LEVEL`)


class Beat(Command):
    """I am here and my work goes on. Said at once after a configuration and after a view is installed too."""

    configuration: bytes  # digest of the one that the sender was in
    since: int  # sequence of the first frame that I said in it, 0 while that is unknown
    sequence: int  # as in Hello
    way: bytes  # as in Hello
    passage: bytes  # as in Hello
    sync_micros: int = 0  # age of the oldest sync that has not ended


class Expelled(Command):
    """This member of the view was silent too long: from here on it is out, for everybody."""

    incarnation: Incarnation


class Regrouped(Command):
    """A node came to my process, or went: time for a new view."""


Word = Hello | Beat | Expelled | Regrouped
