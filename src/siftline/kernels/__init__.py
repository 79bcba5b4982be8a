"""The only compiled code: arrays in, arrays out. Every kernel is made by the one decorator, `kernel`.

Arrays in, arrays out, by the decorators of `compiler.py`, which also let every kernel run interpreted. `json_*.py` is
a JSON parser from bytes to leaves; `moments.py` reads times, `decimals.py` rounds decimals; `locate.py` and
`arrange.py` bring values to codes; `lines.py` lays constants out; `columns.py` is for bulk loading; `scan.py` is the
scan; `spaces.py`, `verify.py` and `selectivity.py` serve several indexes, the others one index each.
"""

from pathlib import Path as _Path

if not _Path(__file__).is_file():
    raise ImportError(
        f"Siftline does not run out of a zip file ({_Path(__file__).parents[2]}), as `--py-files` and `addPyFile` ship "
        "it: what is compiled is kept beside the code, and every process would compile for minutes. Install it where "
        "Python runs: pip install 'siftline[spark]', in the image or the environment of the workers"
    )
