// The rank program of lab 09: the contract's functions, with a look at what each leaves behind, and
// the scenarios that call them.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/tensor/memory_account.h"
#include "common/todo.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/labs/09_sharded/rank_correct.h"
#include "tests/labs/09_sharded/rank_steps.h"

using lab::ProcessGroup;
using lab::grading::is_given;
using lab::grading::own;
using lab::grading::Parcel;

namespace lab09 {
namespace {

/// Parts that the pass under way computes with.
std::set<size_t>& open_parts() {
  thread_local std::set<size_t> parts;
  return parts;
}

/// The weights that the model would compute with, and their gradients.
const lab::Parameter& first_of(const Sharded& sharded, size_t part) {
  return sharded.model.named_parameters()[part == 0 ? 0 : 1 + 9 * (part - 1)];
}

/// Where its numbers are; null: nowhere.
const float* place_of(const lab::Tensor& tensor) {
  return tensor.defined() ? tensor.data() : nullptr;
}

/// An error of the library, with the name of the function that ran into it.
void with_name(const char* function, const std::function<void()>& call) {
  try {
    call();
  } catch (const lab::NotImplemented&) {
    throw;
  } catch (const lab::BrokenOff&) {
    throw;
  } catch (const lab::Error& error) {
    const bool names_it = std::string(error.what()).find(function) != std::string::npos;
    throw lab::Error(names_it ? error.what() : fmt::format("{}: {}", function, error.what()));
  }
}

/// Where the parts that are under way will be.
std::vector<const float*> gathered_ahead(const Sharded& sharded) {
  std::vector<const float*> places;
  for (const Part& part : sharded.parts)
    places.push_back(part.gathering ? place_of(part.values) : nullptr);
  return places;
}

bool padding_is_zero(const lab::Tensor& whole, int64_t size) {
  return std::ranges::all_of(whole.rows(size, whole.numel()).values(),
                             [](float value) { return value == 0; });
}

/// How many collectives of a kind this rank has posted so far.
uint64_t posted(const ProcessGroup& world, lab::OpKind kind) {
  return world.recorder().snapshot().traffic[static_cast<size_t>(kind)].operations;
}

/// How many all_gathers are under way that nobody has waited for.
int64_t gathers_pending(const ProcessGroup& world) {
  return std::ranges::count(world.recorder().snapshot().pending, lab::OpKind::kAllGather,
                            &lab::OpRecord::kind);
}

void expect_opened(const Sharded& sharded, const lab::LlamaStage::PartUse& use, uint64_t gathers,
                   uint64_t expected) {
  const auto name = [&](size_t part) { return sharded.model.part_name(part); };
  const Part& p = sharded.parts[use.part];
  lab::require(p.values.defined(), "open_values returns without the weights of {}", name(use.part));
  lab::require(p.values.numel() == whole_size(p.size, sharded.world.size()),
               "open_values makes {} elements for {}, but all ranks' shards together have {}",
               p.values.numel(), name(use.part), whole_size(p.size, sharded.world.size()));
  lab::require(!p.gathering.has_value(),
               "open_values returns without having waited for the weights of {}, or leaves its "
               "Work in `gathering`: wait, then empty it",
               name(use.part));
  lab::require(first_of(sharded, use.part).value.data() == p.values.data(),
               "open_values has not bound the weights of {} to the model", name(use.part));
  for (size_t q = 0; q < sharded.parts.size(); ++q) {
    if (q == use.part || q == use.next || open_parts().contains(q)) continue;
    lab::require(!sharded.parts[q].values.defined(),
                 "when {} is used, the weights of {} are in memory as well: at most the next part "
                 "is gathered ahead, and close_values frees what was used",
                 name(use.part), name(q));
  }
  lab::require(gathers <= expected,
               "open_values of {} posts {} all_gathers, one too many: the part that is used may be "
               "under way already",
               name(use.part), gathers);
  const int64_t pending = gathers_pending(sharded.world);
  const bool ahead = use.next && *use.next != use.part && !open_parts().contains(*use.next);
  if (ahead) {
    lab::require(pending > 0,
                 "nothing is gathered ahead: when {} begins to compute, the all_gather of {} "
                 "(use.next) must be under way, and not yet waited for",
                 name(use.part), name(*use.next));
    lab::require(sharded.parts[*use.next].gathering.has_value(),
                 "the all_gather of {} (use.next) is under way, but its Work is not in "
                 "`gathering`: put it there, so that the next open_values can wait for it",
                 name(*use.next));
  }
  lab::require(
      pending <= (ahead ? 1 : 0),
      "open_values returns while the all_gather of {} is still under way: nobody has waited for it",
      name(use.part));
  lab::require(
      padding_is_zero(p.values, p.size),
      "the padding of the weights of {} is not 0: it comes from the shards, and must stay 0",
      name(use.part));
}

}  // namespace

// The contract's functions.

int64_t padded(int64_t size, int ranks) {
  return is_given("1") ? given_1::padded(size, ranks) : own(&padded)(size, ranks);
}

Range owned(int64_t size, int rank, int ranks) {
  return is_given("1") ? given_1::owned(size, rank, ranks) : own(&owned)(size, rank, ranks);
}

void reduce_gradient(Sharded& sharded, size_t part) {
  lab::grading::record_event(fmt::format("reduce:{}", part));
  if (is_given("2")) return given_2::reduce_gradient(sharded, part);
  with_name("reduce_gradient", [&] { own (&reduce_gradient)(sharded, part); });
}

void update(Sharded& sharded, float learning_rate) {
  lab::grading::record_event("update");
  if (is_given("2")) return given_2::update(sharded, learning_rate);
  std::vector<const float*> places;
  for (const Part& part : sharded.parts) places.push_back(place_of(part.values));
  const auto memory = std::make_shared<lab::MemoryAccount>();
  with_name("update", [&] {
    try {
      const lab::CountMemory counting(memory);
      own (&update)(sharded, learning_rate);
    } catch (const lab::BrokenOff&) {
      throw;
    } catch (const lab::Error& error) {
      lab::require(sharded.stage < 3 || std::string(error.what()).rfind("all_gather", 0) != 0,
                   "update gathers in stage 3, where `values` has no memory between passes: send "
                   "nothing there, because the next pass gathers the new weights in any case ({})",
                   error.what());
      throw;
    }
  });
  lab::require(sharded.stage == 3 || memory->peak(lab::MemoryKind::kScratch) == 0,
               "update makes a tensor of {} bytes, but needs none: only this rank's shards are "
               "updated, and all_gather takes them where they are, in place",
               memory->peak(lab::MemoryKind::kScratch));
  for (size_t p = 0; p < sharded.parts.size(); ++p)
    lab::require(place_of(sharded.parts[p].values) == places[p],
                 "update puts another tensor into `values` of {}: the model and own_values still "
                 "look at the old one; gather in place",
                 sharded.model.part_name(p));
}

void open_gradient(Sharded& sharded, size_t part) {
  if (is_given("3")) return given_3::open_gradient(sharded, part);
  with_name("open_gradient", [&] { own (&open_gradient)(sharded, part); });
  const Part& p = sharded.parts[part];
  const std::string& name = sharded.model.part_name(part);
  lab::require(
      p.gradient.defined() && p.gradient.numel() == whole_size(p.size, sharded.world.size()),
      "open_gradient makes a `gradient` of {} elements for {}; padded, it must have {}",
      p.gradient.numel(), name, whole_size(p.size, sharded.world.size()));
  lab::require(std::ranges::all_of(p.gradient.values(), [](float g) { return g == 0; }),
               "open_gradient leaves a gradient of {} that is not 0: the backward pass adds to it",
               name);
  lab::require(first_of(sharded, part).gradient.data() == p.gradient.data(),
               "open_gradient has not bound the gradient of {} to the model", name);
}

void close_gradient(Sharded& sharded, size_t part) {
  if (is_given("3")) return given_3::close_gradient(sharded, part);
  const uint64_t before = posted(sharded.world, lab::OpKind::kReduceScatter);
  with_name("close_gradient", [&] { own (&close_gradient)(sharded, part); });
  const std::string& name = sharded.model.part_name(part);
  const uint64_t reduced = posted(sharded.world, lab::OpKind::kReduceScatter) - before;
  lab::require(
      reduced == 1,
      "close_gradient reduces the gradient of {} {} times; it must do so once, before it is freed",
      name, reduced);
  lab::require(!sharded.parts[part].gradient.defined(),
               "close_gradient keeps the gradient of {}: once it is reduced, each rank needs only "
               "its shard",
               name);
  lab::require(!first_of(sharded, part).gradient.defined(),
               "close_gradient leaves the gradient of {} bound: the model keeps its memory alive",
               name);
}

void open_values(Sharded& sharded, const lab::LlamaStage::PartUse& use) {
  if (is_given("4")) return given_4::open_values(sharded, use);
  uint64_t expected = sharded.parts[use.part].values.defined() ? 0 : 1;
  if (use.next && *use.next != use.part && !sharded.parts[*use.next].values.defined()) ++expected;
  const uint64_t before = posted(sharded.world, lab::OpKind::kAllGather);
  with_name("open_values", [&] { own (&open_values)(sharded, use); });
  expect_opened(sharded, use, posted(sharded.world, lab::OpKind::kAllGather) - before, expected);
  open_parts().insert(use.part);
}

void close_values(Sharded& sharded, size_t part) {
  if (is_given("4")) return given_4::close_values(sharded, part);
  const std::vector<const float*> before = gathered_ahead(sharded);
  with_name("close_values", [&] { own (&close_values)(sharded, part); });
  open_parts().erase(part);
  const std::string& name = sharded.model.part_name(part);
  lab::require(gathered_ahead(sharded) == before,
               "close_values of {} changes another part, which is gathered ahead: it must free "
               "only the part that was used",
               name);
  lab::require(!sharded.parts[part].values.defined(),
               "close_values keeps the weights of {}: free what was gathered after its use", name);
  lab::require(!first_of(sharded, part).value.defined(),
               "close_values leaves the weights of {} bound: the model keeps their memory alive",
               name);
}

double clip_gradients(Sharded& sharded, double max_norm) {
  lab::grading::record_event("clip");
  if (is_given("5")) return given_5::clip_gradients(sharded, max_norm);
  return own(&clip_gradients)(sharded, max_norm);
}

double train_step(Sharded& sharded, std::span<const lab::TokenBatch> microbatches,
                  const LossFunction& loss, float learning_rate, double max_norm) {
  open_parts().clear();
  if (is_given("6"))
    return given_6::train_step(sharded, microbatches, loss, learning_rate, max_norm);
  return own(&train_step)(sharded, microbatches, loss, learning_rate, max_norm);
}

std::vector<Piece> pieces_of(int64_t size, int rank, int ranks, int saved_ranks) {
  return own(&pieces_of)(size, rank, ranks, saved_ranks);
}

namespace {

/// Task 1: for each pair of size and ranks the padded size, and every rank's shard.
Parcel run_ranges(const Parcel& input) {
  Parcel result;
  std::vector<double> numbers;
  const std::vector<double> sizes = input.numbers("sizes");
  const std::vector<double> ranks = input.numbers("ranks");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto size = static_cast<int64_t>(sizes[i]);
    const int n = static_cast<int>(ranks[i]);
    numbers.push_back(static_cast<double>(padded(size, n)));
    for (int rank = 0; rank < n; ++rank) {
      const Range own_range = owned(size, rank, n);
      numbers.push_back(static_cast<double>(own_range.first));
      numbers.push_back(static_cast<double>(own_range.last));
    }
  }
  result.set("ranges", numbers);
  return result;
}

/// Task 7: the pieces of every rank's shard, each as four numbers, -1 after each shard.
Parcel run_pieces(const Parcel& input) {
  Parcel result;
  std::vector<double> numbers;
  const int ranks = static_cast<int>(input.number("ranks"));
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Piece& piece : pieces_of(static_cast<int64_t>(input.number("size")), rank, ranks,
                                        static_cast<int>(input.number("saved_ranks"))))
      for (int64_t number : {int64_t{piece.rank}, piece.from.first, piece.from.last, piece.to})
        numbers.push_back(static_cast<double>(number));
    numbers.push_back(-1);
  }
  result.set("pieces", numbers);
  return result;
}

}  // namespace
}  // namespace lab09

int main(int argc, char** argv) {
  return lab::grading::rank_main(
      argc, argv,
      {.alone = {{"ranges", lab09::run_ranges}, {"pieces", lab09::run_pieces}},
       .group = {{"reduce", lab09::run_reduce},
                 {"clip", lab09::run_clip},
                 {"train_step", lab09::run_steps}}});
}
