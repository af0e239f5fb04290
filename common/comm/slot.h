// Slots: the numbers by which the two sides of an operation find each other on the wire.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace lab {

/// A number that depends on all of `values` and their order, well mixed (the finaliser of
/// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
inline uint64_t mixed(std::initializer_list<uint64_t> values) {
  uint64_t hash = 0;
  for (uint64_t value : values) {
    hash += value + 0x9e3779b97f4a7c15;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
    hash ^= hash >> 31;
  }
  return hash;
}

/// Of the `sequence`-th message with this tag between two ranks. The size is part of the slot: if
/// the sides disagree about it, both wait, which a diagnosis can explain; Gloo would abort or
/// deliver only a part. Below 2^56, as Transport requires.
inline uint64_t message_slot(int tag, uint64_t sequence, uint64_t bytes) {
  return mixed({static_cast<uint64_t>(tag), sequence, bytes}) >> 8;
}

/// The tag of the `sequence`-th collective of a group. Two ranks get different tags if they
/// disagree about anything that must be the same on all ranks.
inline uint32_t collective_tag(uint64_t sequence, int kind, uint64_t bytes, int root, int op) {
  return static_cast<uint32_t>(
      mixed({sequence, static_cast<uint64_t>(kind), bytes, static_cast<uint64_t>(root + 1),
             static_cast<uint64_t>(op)}) >>
      32);
}

/// Of the group with a color in the `split`-th split of its parent; 0 is the world's.
inline uint32_t group_id(uint32_t parent, uint64_t split, int color) {
  const auto id = static_cast<uint32_t>(mixed({parent, split, static_cast<uint64_t>(color)}) >> 32);
  return id == 0 ? 1 : id;
}

}  // namespace lab
