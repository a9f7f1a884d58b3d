from octavo.kv.block import KVCacheBlock
from octavo.kv.block_table import BlockTable


def make_table(*block_ids, num_committed_blocks=0):
    return BlockTable(map(KVCacheBlock, block_ids), num_committed_blocks=num_committed_blocks)


def test_the_address_of_a_token_follows_from_the_table():
    """Design: with [9, 2, 14] and 4 tokens per block, position 6 is block 2, offset 2."""
    assert make_table(9, 2, 14).block_ids[6 // 4] == 2


def test_a_new_table_is_empty_and_uncommitted():
    table = BlockTable()
    assert (table.block_ids, table.num_committed_blocks, table.changed_from) == ([], 0, 0)


def test_changes_are_told_once():
    table = make_table(9, 2)
    assert table.changed_from == 0
    assert table.take_change() == (0, [9, 2])
    assert table.take_change() == (2, [])
    table.blocks.append(KVCacheBlock(14))
    assert table.changed_from == 2
    assert table.take_change() == (2, [14])


def test_a_replaced_entry_is_told_with_everything_after_it():
    table = make_table(9, 2, 14, num_committed_blocks=3)
    table.take_change()
    table.replace(2, KVCacheBlock(4))
    table.replace(1, KVCacheBlock(5))
    table.replace(2, KVCacheBlock(6))
    assert table.num_committed_blocks == 1
    assert table.take_change() == (1, [5, 6])
    assert table.block_ids == [9, 5, 6]
