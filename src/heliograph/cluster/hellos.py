"""The hellos of one configuration, and when they make a view.

What happens here depends on the order of deliveries and on nothing else, so it happens to all who heard the same:
no clock, no phase, no difference between those who are in a company and those who were left out of it.
"""

from __future__ import annotations

import hashlib

import msgspec

from heliograph.bus.interface import Configuration, Incarnation, Stamp
from heliograph.bus.presence import DIGEST_BYTES, Hello
from heliograph.cluster.view import View, formed

_encode = msgspec.msgpack.Encoder().encode


def digest_of(configuration: Configuration) -> bytes:
    """The same for all who were told of this configuration, whoever is new to them."""
    told = _encode((configuration.ring, configuration.members))
    return hashlib.blake2b(told, digest_size=DIGEST_BYTES).digest()


class Hellos:
    """What each member said last."""

    def __init__(self, configuration: Configuration) -> None:
        self._ring = configuration.ring
        self._listed = configuration.members
        self._latest: dict[Incarnation, Hello] = {}
        self._views: dict[Incarnation, Stamp] = {}

    def delivered(self, who: Incarnation, hello: Hello) -> bool:
        """False: it answers another configuration, or was said before the view that its sender is in."""
        company = hello.company
        if company.ring != self._ring or company.listed != self._listed or who not in company.members:
            return False
        if self._views.get(who, hello.last) != hello.last:
            return False
        self._latest[who] = hello
        return True

    def take_view(self, hello: Hello) -> View | None:
        """PROTOCOL 2: a view is made when a matching hello of every member of a company has been delivered.

        A hello counts once: those who made a view must answer again before there is another.
        """
        company = hello.company
        said = [(who, self._latest.get(who)) for who in company.members]
        matching = [(who, each) for who, each in said if each is not None and each.company == company]
        if len(matching) != len(said):
            return None
        view = formed(company, matching)
        for who in company.members:
            del self._latest[who]
            self._views[who] = view.id
        return view
