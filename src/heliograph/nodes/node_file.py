"""Whose data a folder holds: `node.json`, written at the first start, so that nobody goes on with another's data."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from heliograph.journal.disk import CHANGE, MAKE_NEW, Disk
from heliograph.model.errors import HeliographError

_NAME: Final = "node.json"


class NodeFile(msgspec.Struct):
    """What the file says."""

    node: str
    cluster: str


class Folder:
    """The data folder of a node of a cluster."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk

    def claim(self, node: str, cluster: str) -> None:
        """Raises HeliographError if the folder is another's."""
        found = self._read()
        if found is not None and found.cluster != cluster:
            raise HeliographError(
                f"the folder {self._folder} has data of cluster {found.cluster!r}, and this node is to be of"
                f" {cluster!r}: give it another folder with --data",
                code="data-of-another-cluster",
            )
        if found is not None and found.node != node:
            raise HeliographError(
                f"the folder {self._folder} has data of node {found.node}, and this is node {node}: give it another"
                " folder with --data, or set identity.site and identity.node as they were",
                code="data-of-another-node",
            )
        if found is None:
            self._write(NodeFile(node, cluster))

    def _read(self) -> NodeFile | None:
        try:
            return msgspec.json.decode(self._disk.read(self._folder / _NAME), type=NodeFile)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HeliographError(
                f"{self._folder / _NAME} cannot be read ({error}): it says whose data this is; put it back from a"
                " copy, or remove it if you are sure",
                code="data-of-another-node",
            ) from None

    def _write(self, file: NodeFile) -> None:
        """Whole or not at all."""
        self._disk.make_folder(self._folder)
        path, new = self._folder / _NAME, self._folder / f"{_NAME}.new"
        try:
            descriptor = self._disk.open(new, MAKE_NEW)
        except FileExistsError:
            descriptor = self._disk.open(new, CHANGE)
            self._disk.truncate(descriptor, 0)
        try:
            self._disk.pwrite(descriptor, msgspec.json.format(msgspec.json.encode(file)), 0)
            self._disk.fsync(descriptor)
        finally:
            self._disk.close(descriptor)
        self._disk.rename(new, path)
        self._disk.sync_folder(self._folder)
