"""Commands of other distributions, in processes that see some distributions or none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
CALL = "import sys; from siftline.cli import main; status = main(sys.argv[1:]); {}; sys.exit(status)"
# What a process imports to look for entry points.
LOOKS = "importlib.metadata"


def siftline(*arguments: str, others: Path | None = None, then: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line with the standard library, the product, and another folder of packages."""
    folders = [str(SOURCE), *([str(others)] if others else [])]
    # -S leaves the folder of installed packages out, and with it the laboratory.
    return subprocess.run(
        [sys.executable, "-S", "-c", CALL.format(then or "pass"), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A folder with a distribution that brings `greet`, and `broken`, whose module is missing."""
    (tmp_path / "greeting.py").write_text(
        'SUMMARY, DETAILS, EXAMPLES = "greet somebody, 100 %", "", ""\n'
        'def add_arguments(parser): parser.add_argument("name")\n'
        'def run(args): print("hello", args.name); return 1\n'
    )
    about = tmp_path / "greetings-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[siftline.commands]\ngreet = greeting\nbroken = no_such_module\n")
    return tmp_path


@pytest.mark.parametrize("arguments", [("bench",), ("bench", "list"), ("bench", "--help")])
def test_bench_says_how_to_install_it(arguments: tuple[str, ...]) -> None:
    outcome = siftline(*arguments)
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert outcome.stderr == "siftline: `siftline bench` is not installed: pip install 'siftline[bench]' installs it\n"


def test_the_help_says_that_bench_is_not_installed() -> None:
    outcome = siftline("--help")
    assert outcome.returncode == 0
    assert "(not installed: pip install 'siftline[bench]')" in " ".join(outcome.stdout.split())


def test_another_distribution_brings_a_command(others: Path) -> None:
    outcome = siftline("greet", "ann", others=others)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (1, "hello ann\n", "")
    assert "Greet somebody" in siftline("greet", "--help", others=others).stdout


def test_a_command_that_cannot_be_loaded_is_an_error_of_its_own(others: Path) -> None:
    outcome = siftline("broken", others=others)
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("siftline: `siftline broken` cannot be loaded: ModuleNotFoundError")
    listed = " ".join(siftline("--help", others=others).stdout.split())
    assert "greet somebody, 100 %" in listed
    assert "`siftline broken` cannot be loaded" in listed


def test_commands_of_the_product_do_not_look_for_others(others: Path) -> None:
    looked = f"print({LOOKS!r} in sys.modules)"
    for arguments in (("check", "--help"), ("--version",)):
        assert siftline(*arguments, others=others, then=looked).stdout.endswith("False\n")
    assert siftline("greet", "ann", others=others, then=looked).stdout.endswith("True\n")


def test_unknown_commands_are_refused(others: Path) -> None:
    outcome = siftline("bnch", others=others)
    assert outcome.returncode == 2
    assert "invalid choice: 'bnch'" in outcome.stderr
