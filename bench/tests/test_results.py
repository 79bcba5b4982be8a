"""Files of rows, plain and compressed."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from siftline_bench.arguments import results_path
from siftline_bench.errors import ResultsError
from siftline_bench.figures import harness
from siftline_bench.results import append, mend, read, stored

KEPT = Path(__file__).parents[1] / "results"
ROWS = [{"workload": "dense", "run": name, "round": 1} for name in "abc"]


@pytest.fixture
def compressed(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress((json.dumps(ROWS[0]) + "\n").encode()))
    return path


def test_rows_are_appended_to_a_file_that_is_there_only_compressed(compressed: Path) -> None:
    plain = compressed.with_suffix("")
    assert append(ROWS[1:2], plain) == compressed
    append(ROWS[2:], compressed)
    assert read(plain) == read(compressed) == ROWS
    assert not plain.exists()


def test_a_plain_file_comes_first(compressed: Path) -> None:
    plain = compressed.with_suffix("")
    plain.write_text(json.dumps(ROWS[1]) + "\n")
    assert stored(plain) == plain
    assert append(ROWS[2:], plain) == plain
    assert read(plain) == ROWS[1:]
    assert read(compressed) == ROWS[:1]


@pytest.mark.parametrize("n_left", [1, 20, -1])
def test_the_end_of_a_compressed_file_that_was_being_written_is_cut_off(compressed: Path, n_left: int) -> None:
    append(ROWS[1:2], compressed)
    whole = compressed.read_bytes()
    append(ROWS[2:], compressed)
    more = compressed.read_bytes()[len(whole) :]
    compressed.write_bytes(whole + more[:n_left])
    with pytest.raises(ResultsError, match="cannot read"):
        read(compressed)
    assert list(harness.rows_by_run(compressed.with_suffix(""))) == ["a", "b"]
    assert compressed.read_bytes() == whole
    append(ROWS[2:], compressed)
    assert read(compressed) == ROWS


def test_a_damaged_file_is_not_cut(compressed: Path) -> None:
    content = bytearray(compressed.read_bytes())
    content[len(content) // 2] ^= 255
    compressed.write_bytes(content)
    mend(compressed)
    assert compressed.read_bytes() == bytes(content)
    with pytest.raises(ResultsError, match="cannot read"):
        read(compressed)


def test_rows_go_to_the_folder_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert results_path("sift") == Path("results/sift.jsonl")
    (tmp_path / "bench" / "results").mkdir(parents=True)
    assert results_path("sift") == Path("bench/results/sift.jsonl")


@pytest.mark.parametrize("path", sorted(KEPT.iterdir()), ids=lambda path: path.name)
def test_kept_files_have_rows_with_machine_and_date(path: Path) -> None:
    assert path.suffix == ".xz"
    rows = read(path)
    assert rows
    assert all(row["date"] and row["machine"]["processor"] for row in rows)
