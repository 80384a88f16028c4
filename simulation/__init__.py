"""The cluster in one process on virtual time: world, network, bus, members, faults, checkers.

The engines that run here are the engines of production; only bus, disk and clock are imitated.
"""
