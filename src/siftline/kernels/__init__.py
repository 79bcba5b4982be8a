"""The only compiled code: arrays in, arrays out. Every kernel is made by the one decorator, `kernel`."""

from pathlib import Path as _Path

if not _Path(__file__).is_file():
    raise ImportError(
        f"Siftline does not run out of a zip file ({_Path(__file__).parents[2]}), as `--py-files` and `addPyFile` ship "
        "it: what is compiled is kept beside the code, and every process would compile for minutes. Install it where "
        "Python runs: pip install 'siftline[spark]', in the image or the environment of the workers"
    )
