"""For tests of applications: servers and clusters in the test's own process, whose network can be cut and whose clock
can be set forward.

    def test_an_order_is_shipped(heliograph_server): ...
    def test_orders_while_the_network_is_cut(heliograph_cluster): ...

`plugin` has the fixtures, which pytest finds by itself where Heliograph is installed. Nothing else is imported until
a test asks for one.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heliograph.testing.clock import TestClock
    from heliograph.testing.cluster import ClusterFactory, RunningCluster
    from heliograph.testing.server import RunningServer
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        rooms = {"TestClock": "clock", "RunningServer": "server"}
        if name in __all__:
            return getattr(import_module(f"heliograph.testing.{rooms.get(name, 'cluster')}"), name)
        raise AttributeError(f"module 'heliograph.testing' has no attribute {name!r}")


__all__ = ["ClusterFactory", "RunningCluster", "RunningServer", "TestClock"]
