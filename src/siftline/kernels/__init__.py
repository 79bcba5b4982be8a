"""Compiled code that several folders share: arrays in, arrays out.

The decorators of `compiler.py` make every kernel, and also let it run interpreted. `codes.py` defines the codes,
`literals.py` and `verify.py` decide whether clauses hold, `spaces.py` and `selectivity.py` serve several indexes.
`json_*.py` is a JSON parser from bytes to leaves; `moments.py` reads times, `decimals.py` rounds decimals; `locate.py`
and `arrange.py` turn values into codes; `text_search.py` finds the texts of all patterns, and `networks.py` reads
addresses; `programs.py` runs expressions on the values of an event (`program_table.py`, `program_tests.py`,
`text_tests.py`; `program_checks.py` for one event in JSON); `lines.py` lays out constants; `columns.py` is for bulk
loading. Kernels of a single index are in the folder of that index.
"""

from pathlib import Path as _Path

if not _Path(__file__).is_file():
    raise ImportError(
        f"Siftline does not run out of a zip file ({_Path(__file__).parents[2]}), as `--py-files` and `addPyFile` ship "
        "it: what is compiled is kept beside the code, and every process would compile for minutes. Install it where "
        "Python runs: pip install 'siftline[spark]', in the image or the environment of the workers"
    )
