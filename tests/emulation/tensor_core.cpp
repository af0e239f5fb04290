// Instructions of tensor cores, by the layouts of the PTX ISA: "Matrix Fragments for mma.m16n8k16
// with floating point type" and "Warp-level matrix load instruction: ldmatrix". The formulas here
// go from an element to the lane that holds it.
#include "emulated/tensor_core.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "access_inline.h"
#include "descriptions.h"
#include "places.h"

namespace lab::emulation {
namespace {

/// A lane's share of A [16 x 16] and of B [16 x 8], two elements a register.
struct Operands {
  uint32_t a[4];
  uint32_t b[2];
};

float element(uint32_t pair, int which) {
  return std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xffff0000U);
}

/// A[row][column], from the fragments of all lanes.
float element_of_a(const Operands* lanes, int row, int column) {
  const Operands& lane = lanes[row % 8 * 4 + column % 8 / 2];
  return element(lane.a[row / 8 + column / 8 * 2], column % 2);
}

float element_of_b(const Operands* lanes, int row, int column) {
  const Operands& lane = lanes[column * 4 + row % 8 / 2];
  return element(lane.b[row / 8], row % 2);
}

/// A row of an 8 x 8 matrix, which one of the lanes has pointed to.
struct Row {
  uint16_t elements[8];
};

uint32_t pair_of(uint16_t low, uint16_t high) { return low | uint32_t{high} << 16; }

[[noreturn]] void fail_row(uintptr_t address, WarpOperation operation, SourceLocation where,
                           const char* why) {
  std::string place_in_memory = "memory of the host";
  if (address - access_map.device_begin < DeviceMemory::kCapacity) {
    place_in_memory = describe_device(address, 2);
  } else if (address - current_thread->stack < FiberPool::kStackBytes) {
    place_in_memory = "a variable of its own";
  } else if (access_map.shared->contains(address)) {
    place_in_memory = describe_shared(address, 2);
  } else if (address - access_map.dynamic_begin < 3 * kDynamicSharedCapacity) {
    place_in_memory = describe_dynamic(address, 2);
  }
  std::string what = fmt::format("loads a row of a matrix by {} at {} from {}, {}",
                                 name_of(operation), place(where), place_in_memory, why);
  std::string().swap(place_in_memory);  // this stack is never unwound
  Block::instance().fail(std::move(what));
}

/// The row at `address`, read by the running thread; and those of the other lanes.
const Row* gather_rows(const void* address, WarpOperation operation, SourceLocation where,
                       const void* instruction) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  const bool shared = access_map.shared->contains(number) ||
                      number - access_map.dynamic_begin < 3 * kDynamicSharedCapacity;
  if (!shared) fail_row(number, operation, where, "which is not shared memory");
  if (number % sizeof(Row) != 0) {
    fail_row(number, operation, where, "which does not begin at a multiple of 16 bytes");
  }
  access<Use::kRead>(const_cast<void*>(address), sizeof(Row), instruction);
  Row row;
  std::memcpy(&row, address, sizeof(row));
  return gather(operation, row, where);
}

int lane_of_thread() { return static_cast<int>(current_thread->index % 32); }

}  // namespace

void mma_16x8x16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b_upper, uint32_t b_lower,
                 SourceLocation where) {
  const Operands mine{{a[0], a[1], a[2], a[3]}, {b_upper, b_lower}};
  const Operands* lanes = gather(WarpOperation::kMultiply, mine, where);
  const int lane = lane_of_thread();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8;
    const int column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      sum[i] += element_of_a(lanes, row, k) * element_of_b(lanes, k, column);
    }
  }
}

void load_matrices(uint32_t (&matrices)[4], const void* row, SourceLocation where) {
  const Row* rows =
      gather_rows(row, WarpOperation::kLoadMatrices, where, __builtin_return_address(0));
  const int lane = lane_of_thread();
  for (int i = 0; i < 4; ++i) {
    const uint16_t* elements = rows[8 * i + lane / 4].elements + lane % 4 * 2;
    matrices[i] = pair_of(elements[0], elements[1]);
  }
}

void load_matrices_transposed(uint32_t (&matrices)[4], const void* row, SourceLocation where) {
  const Row* rows =
      gather_rows(row, WarpOperation::kLoadMatricesTransposed, where, __builtin_return_address(0));
  const int lane = lane_of_thread();
  for (int i = 0; i < 4; ++i) {
    const Row* two = rows + 8 * i + lane % 4 * 2;
    matrices[i] = pair_of(two[0].elements[lane / 4], two[1].elements[lane / 4]);
  }
}

}  // namespace lab::emulation
