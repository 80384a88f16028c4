"""Bugs to plant in the views: each leaves out one rule, and a run must show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.bus.commands import Command
from heliograph.bus.interface import Incarnation, Origin, Stamp
from heliograph.bus.presence import Hello
from heliograph.cluster import hellos, view
from heliograph.cluster.events import Effect
from heliograph.cluster.hellos import Hellos
from heliograph.cluster.lineage import Lineage
from heliograph.cluster.view import Said, View
from heliograph.cluster.views import Phase, Views
from heliograph.model.limits import HELLO_SECONDS
from heliograph.nodes.cluster_member import _Stay

# What to replace in whom by what.
Plant = tuple[tuple[Any, str, Any], ...]

_same_way = view._came_the_same_way
_formed = view.formed
_greet = Views._greet
_nodes_changed = Views._nodes_changed
_heard = _Stay._heard


def _with_any_stamp(self: Views, origin: Origin) -> bool:
    return self.phase is Phase.INSTALLED


def _in_any_phase(self: Views, origin: Origin) -> bool:
    return self.view is not None and origin.stamp == self.view.id


def _blind_to(field: str) -> Callable[..., bool]:
    def same_way(who: Incarnation, hello: Hello, other: Incarnation, said: Hello) -> bool:
        blank = {field: b""}
        return _same_way(
            who, msgspec.structs.replace(hello, **blank), other, msgspec.structs.replace(said, **blank)
        )

    return same_way


def _without_with(who: Incarnation, hello: Hello, other: Incarnation, said: Hello) -> bool:
    everybody = (who, other)
    return _same_way(
        who,
        msgspec.structs.replace(hello, together=everybody),
        other,
        msgspec.structs.replace(said, together=everybody),
    )


def _take_any_hello(self: Hellos, who: Incarnation, hello: Hello) -> bool:
    self._latest[who] = hello
    return True


def _view_of_any_hellos(self: Hellos, hello: Hello) -> View | None:
    members = hello.company.members
    if any(who not in self._latest for who in members):
        return None
    return _formed(hello.company, [(who, self._latest.pop(who)) for who in members])


def _take_stale_hello(self: Hellos, who: Incarnation, hello: Hello) -> bool:
    company = hello.company
    if company.ring != self._ring or company.listed != self._listed:
        return False
    self._latest[who] = hello
    return True


def _named_by_number(company: Any, said: list[Said]) -> View:
    made = _formed(company, said)
    return msgspec.structs.replace(made, id=Stamp(made.id[:8] + bytes(16)))


def _wait_for_ever(self: Views, at: float) -> list[Effect]:
    return self._hello_again(at) if at - self._greeted >= HELLO_SECONDS else []


def _do_nothing(*_: object) -> list[Effect]:
    return []


def _greet_unforced(self: Views, at: float) -> list[Effect]:
    self._forced = self._attempt
    return _greet(self, at)


def _tell_by_hello_alone(self: Views, at: float) -> list[Effect]:
    said = _nodes_changed(self, at)
    self._has_news = False
    return said


def _count_the_others(self: _Stay, origin: Origin, commands: list[Command]) -> None:
    if origin.incarnation == self.membership.incarnation:
        self.position -= 1
    _heard(self, origin, commands)


def _count_frames_only(self: _Stay, origin: Origin, commands: list[Command]) -> None:
    self._handler.on_apply(origin, commands, self.position)


PLANTS: dict[str, Plant] = {
    "decisions with any stamp": ((Views, "_is_in_view", _with_any_stamp),),
    "decisions between configuration and view": ((Views, "_is_in_view", _in_any_phase),),
    "straight without frame hashes": ((view, "_came_the_same_way", _blind_to("frames")),),
    "straight without the way there": ((view, "_came_the_same_way", _blind_to("passage")),),
    "straight without with": ((view, "_came_the_same_way", _without_with),),
    "with never shrinks": ((Lineage, "configured", _do_nothing),),
    "a hello answers anything": (
        (Hellos, "delivered", _take_any_hello),
        (Hellos, "take_view", _view_of_any_hellos),
    ),
    "a hello from before the view": ((Hellos, "delivered", _take_stale_hello),),
    "views by number": ((hellos, "formed", _named_by_number),),
    "nobody is excluded": (
        (Views, "_give_up_waiting", _wait_for_ever),
        (Views, "_give_up_gathering", _do_nothing),
    ),
    "nobody is expelled": ((Views, "_report_silence", _do_nothing),),
    "hello before the disk": ((Views, "_greet", _greet_unforced),),
    "news between hello and view": ((Views, "_nodes_changed", _tell_by_hello_alone),),
    "every view takes what came before it": ((View, "is_whole", True),),
    "its own frames are not counted": ((_Stay, "_heard", _count_the_others),),
    "the parts of a frame are not counted": ((_Stay, "_apply", _count_frames_only),),
}
