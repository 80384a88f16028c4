"""What stands before each record of a portion of history, and before each block of a portion of a lease (D2).

Shared by the server, which writes portions, and by who reads them: a task of Spark, which must start quickly and need
not know anything else of a server.
"""

from __future__ import annotations

import struct
from typing import Final

FED: Final = struct.Struct("<IBIIQ")
"""Before each record of the history: bytes of the payload, kind, destination, list, LSN."""
LENT: Final = struct.Struct("<IIQ")
"""Before each block of a lease: its bytes, earlier deliveries, the number of its first message."""
