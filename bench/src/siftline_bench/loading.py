"""A table that is loaded once for all engines that are compared.

Loading costs the same for every index, and at the papers' sizes it takes as long as building one. This is the one place
where the laboratory reaches into an engine: no public method adds a table that another engine takes as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from siftline import Engine
    from siftline.encoding.columns import LoadedColumns


def add_loaded(engine: Engine, loaded: LoadedColumns) -> int:
    """Add what `load_columns` made of a table over empty domains; several engines may take the same.

    Only an engine that never had subscriptions takes it.
    """
    with engine._state.writing:
        if engine._state.table.n_slots or engine._state.domains.ids:
            raise ValueError("only a new engine takes what was loaded for one")
        return engine._updates.add_columns(loaded._replace(domains=loaded.domains.copied()), None)
