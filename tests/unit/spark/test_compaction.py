"""An archive's small files are put together, so many at a time as memory has room for (D4)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from pyarrow import parquet

from heliograph.spark.pipelines import archive
from heliograph.spark.pipelines.manifest import Entry, Manifest

pytestmark = pytest.mark.req("D4")


def test_small_files_are_put_together_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, folder = Manifest(tmp_path), tmp_path / "day=2026-01-01"
    folder.mkdir()
    for n in range(20):
        parquet.write_table(pa.table({"n": [n]}), folder / f"{n:02d}.parquet")
        manifest.add(Entry(key=f"q:{n}", adds=[f"day=2026-01-01/{n:02d}.parquet"], rows=1))
    size = (folder / "00.parquet").stat().st_size
    monkeypatch.setattr(archive, "GROUP_BYTES", 6 * size)
    told: list[str] = []
    assert archive.compact(tmp_path, told.append) == 20
    assert [line.split()[1] for line in told] == ["6", "6", "6", "2"]
    files = Manifest(tmp_path).files()
    assert sorted(path.name for path in folder.iterdir()) == sorted(Path(name).name for name in files)
    tables = [parquet.read_table(tmp_path / name, partitioning=None) for name in files]
    assert sorted(pa.concat_tables(tables)["n"].to_pylist()) == list(range(20))
    assert archive.compact(tmp_path, told.append) == 0, "too few of them are left"
