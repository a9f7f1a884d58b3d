"""A view of the beginning of a list that grows."""

import pytest

from octavo.engine.list_view import ListView


def test_what_is_appended_later_does_not_show():
    items = [1, 2, 3]
    view = ListView(items)
    items.append(4)
    assert (len(view), list(view), view[-1], view[1:], view[::-1]) == (3, [1, 2, 3], 3, [2, 3], [3, 2, 1])
    assert 4 not in view
    assert repr(view) == "[1, 2, 3]"
    with pytest.raises(IndexError):
        view[3]


def test_it_may_begin_later():
    view = ListView([1, 2, 3, 4], 2)
    assert (len(view), list(view), view[0], view[-1], view[::-1]) == (2, [3, 4], 3, 4, [4, 3])
    assert view == [3, 4]
    with pytest.raises(IndexError):
        view[2]


def test_it_equals_sequences_with_the_same_items():
    view = ListView([1, 2])
    assert view == [1, 2] == view
    assert view == (1, 2)
    assert view == ListView([1, 2])
    assert view != [1, 2, 3]
    assert view != [2, 1]
    assert view != "12"
    with pytest.raises(TypeError):
        hash(view)
