"""What stays and what is freed after a verify pass, against a cache that is simulated slot by slot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.patches_sglang.modules import module

commit_lists = module("ddtree_commit").commit_lists


@given(
    st.integers(1, 20).flatmap(
        lambda rows: st.tuples(
            st.just(rows),
            st.lists(
                st.sets(st.integers(1, rows - 1) if rows > 1 else st.nothing()).map(
                    lambda path: [0, *sorted(path)]
                ),
                max_size=4,
            ),
        )
    )
)
def test_paths_are_kept_in_order_and_everything_else_is_freed_once(case: tuple[int, list[list[int]]]) -> None:
    rows, paths = case
    keep, drop = commit_lists(paths, rows)
    slots = [f"{request}:{row}" for request in range(len(paths)) for row in range(rows)]
    assert [slots[row] for row in keep] == [
        f"{request}:{row}" for request, path in enumerate(paths) for row in path
    ]
    assert sorted(keep + drop) == list(range(len(slots)))
