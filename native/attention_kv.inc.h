// Where the tiles of a sequence lie in the paged cache, and copies of those that cannot be used in place.
#pragma once

#include "attention_tile.inc.h"
#include "attention_tile_int8.inc.h"

namespace octavo::OCTAVO_ISA {
namespace {

// One layer of the cache, seen through one block table.
struct SequenceKv {
  const KvView& kv;
  int layer;
  const int32_t* block_table;
};

// Memory for one tile in float32; of an int8 tile, K takes the place of keys and all scales that of values.
struct TileCopy {
  float* keys;    // [kTileColumns][head_dim][16]
  float* values;  // [kTileTokens][head_dim rounded up to 16]
};

// A tile of one K/V head, and the tokens of it that any row of the item sees.
struct TileAddress {
  int kv_head;
  int first_token;
  VisibleRange visible;  // within the tile
};

// Where a tile's tokens lie, 8 (`granule` being half a column) or 16 at a time, from `offset` on in a block's head.
template <class Element>
OCTAVO_INLINE void set_granule(const KvView& kv, const std::byte* head, int offset, int granule, TileView<Element>& view) {
  const Element* elements = reinterpret_cast<const Element*>(head);
  view.values[granule] = elements + kv.value_offset(offset, 0);
  view.keys[granule / 2] = elements + kv.key_offset(offset - offset % kv.tile, 0);
  if constexpr (sizeof(Element) == 1) {
    const std::byte* scale = head + kv.scale_offset(offset - offset % kv.tile);
    view.key_scales[granule] = reinterpret_cast<const float*>(scale);
    view.value_scales[granule] = view.key_scales[granule] + kv.block_size;
  }
}

template <class Element>
OCTAVO_INLINE void set_column(const KvView& kv, const std::byte* head, int offset, int column, TileView<Element>& view) {
  const int64_t before = int64_t{offset} * kv.head_dim;  // elements of K, and of V: whole vectors of tokens, in any order
  const Element* elements = reinterpret_cast<const Element*>(head) + before;
  view.keys[column] = elements;
  view.values[2 * column] = elements + kv.half_elements();
  view.values[2 * column + 1] = view.values[2 * column] + int64_t{8} * kv.head_dim;
  if constexpr (sizeof(Element) == 1) {
    const float* scales = reinterpret_cast<const float*>(head + kv.scale_offset(offset));
    view.key_scales[2 * column] = view.key_scales[2 * column + 1] = scales;
    view.value_scales[2 * column] = view.value_scales[2 * column + 1] = scales + kv.block_size;
  }
}

// Calls set(head, offset, i, view) for each run of kTokens of the tile. The blocks before and after the visible tokens
// may not exist, so their addresses are not looked up; those entries repeat an existing one, for the sake of the prefetch.
template <class Element, int kTokens, class Set>
OCTAVO_INLINE TileView<Element> find_runs(const SequenceKv& sequence, const TileAddress& address, Set set) {
  const KvView& kv = sequence.kv;
  const int first = address.visible.begin / kTokens, last = (address.visible.end - 1) / kTokens;
  const int first_token = address.first_token + first * kTokens;
  const int64_t block_bytes = kv.block_bytes();
  const std::byte* heads = kv.head(sequence.layer, 0, address.kv_head);
  const int32_t* entry = sequence.block_table + first_token / kv.block_size;
  int offset = first_token % kv.block_size;
  const std::byte* head = heads + *entry * block_bytes;
  TileView<Element> view;
  for (int i = 0; i < kTileTokens / kTokens; ++i) {
    set(head, offset, i, view);
    if (i < first || i >= last) continue;
    offset += kTokens;
    if (offset == kv.block_size) {
      offset = 0;
      head = heads + *++entry * block_bytes;
    }
  }
  return view;
}

template <class Element>
TileView<Element> find_tile(const SequenceKv& sequence, const TileAddress& address) {
  const KvView& kv = sequence.kv;
  if (kv.tile == kLanes) {
    return find_runs<Element, kLanes>(sequence, address, [&](const std::byte* head, int offset, int column, auto& view) {
      set_column(kv, head, offset, column, view);
    });
  }
  return find_runs<Element, 8>(sequence, address, [&](const std::byte* head, int offset, int granule, auto& view) {
    set_granule(kv, head, offset, granule, view);
  });
}

// Tiles of 16 tokens and whole vectors of values can be used where they lie.
OCTAVO_INLINE bool must_copy_tiles(const KvView& kv) { return kv.tile != kLanes || kv.head_dim % kLanes != 0; }

// [head_dim][16] as it is.
template <class Element>
void copy_key_column(const Element* keys, int head_dim, float* to) {
  for (int i = 0; i < head_dim * kLanes; i += kLanes) store16(to + i, load_kv(keys + i));
}

// [head_dim][8] into one half of [head_dim][16]; 16 elements of the source are two of the head, 8 tokens each.
template <class Element>
void copy_key_granule(const Element* keys, int head_dim, float* to) {
  alignas(64) float pair[kLanes];
  for (int d = 0; d < head_dim; d += 2) {
    store16(pair, load_kv(keys + d * 8));  // head_dim is even
    __builtin_memcpy(to + d * kLanes, pair, 8 * sizeof(float));
    __builtin_memcpy(to + (d + 1) * kLanes, pair + 8, 8 * sizeof(float));
  }
}

// 8 tokens, row by row; what a row lacks of whole vectors is filled up with zeros.
template <class Element>
void copy_values(const Element* values, int head_dim, float* to, int stride) {
  const int whole = head_dim / kLanes * kLanes;
  for (int token = 0; token < 8; ++token, values += head_dim, to += stride) {
    for (int d = 0; d < whole; d += kLanes) store16(to + d, load_kv(values + d));
    if (whole == head_dim) continue;
    alignas(64) Element tail[kLanes] = {};
    __builtin_memcpy(tail, values + whole, static_cast<size_t>(head_dim - whole) * sizeof(Element));
    store16(to + whole, load_kv(tail));
  }
}

// Widens what holds visible tokens into [head_dim][16] keys and [64][stride] values.
template <class Element>
TileView<float> copy_tile(const KvView& kv, const TileView<Element>& tile, VisibleRange visible, const TileCopy& to) {
  const int stride = round_up_to_lanes(kv.head_dim);
  TileView<float> copy;
  for (int granule = 0; granule < kTileGranules; ++granule) {
    float* keys = to.keys + granule / 2 * kv.head_dim * kLanes;
    float* values = to.values + granule * 8 * stride;
    copy.keys[granule / 2] = keys;
    copy.values[granule] = values;
    if (granule < visible.begin / 8 || granule > (visible.end - 1) / 8) continue;
    copy_values(tile.values[granule], kv.head_dim, values, stride);
    if (kv.tile == 8) {
      copy_key_granule(tile.values[granule] - kv.half_elements(), kv.head_dim, keys + granule % 2 * 8);
    } else if (granule % 2 == 0 || granule == visible.begin / 8) {
      copy_key_column(tile.keys[granule / 2], kv.head_dim, keys);
    }
  }
  return copy;
}

// [head_dim / 4][8][4] into one half of [head_dim / 4][16][4].
OCTAVO_INLINE void copy_key_granule(const int8_t* keys, int head_dim, int8_t* to) {
  for (int d = 0; d < head_dim; d += 4) __builtin_memcpy(to + d * kLanes, keys + d * 8, 32);
}

// Joins the halves of what holds visible tokens. Values are quads of tokens anyway.
inline TileView<int8_t> copy_tile(const KvView& kv, const TileView<int8_t>& tile, VisibleRange visible, const TileCopy& to) {
  TileView<int8_t> copy = tile;
  for (int granule = 0; granule < kTileGranules; ++granule) {
    const int column = granule / 2, first_token = granule * 8;
    int8_t* keys = reinterpret_cast<int8_t*>(to.keys) + int64_t{column} * kv.head_dim * kLanes;
    copy.keys[column] = keys;
    copy.key_scales[granule] = to.values + column * kLanes;
    copy.value_scales[granule] = copy.key_scales[granule] + kTileTokens;
    if (granule < visible.begin / 8 || granule > (visible.end - 1) / 8) continue;
    copy_key_granule(tile.values[granule] - kv.half_elements(), kv.head_dim, keys + granule % 2 * 32);
    __builtin_memcpy(to.values + first_token, tile.key_scales[granule], 32);
    __builtin_memcpy(to.values + kTileTokens + first_token, tile.value_scales[granule], 32);
  }
  return copy;
}

// What copies of tiles hold.
template <class Element>
struct CopyOf { using type = float; };
template <>
struct CopyOf<int8_t> { using type = int8_t; };

}  // namespace
}  // namespace octavo::OCTAVO_ISA
