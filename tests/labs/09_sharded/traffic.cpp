#include "tests/labs/09_sharded/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "tests/grading/operations.h"
#include "tests/grading/verdict.h"

namespace lab09 {
namespace {

using lab::OpKind;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::stop;
using lab::grading::TrainingCase;

constexpr double kFloat = sizeof(float);
constexpr uint64_t kNumberOrTwo = 16;  // bytes

bool is_number_or_two(const Operation& operation) {
  return operation.bytes > 0 && operation.bytes <= kNumberOrTwo;
}

/// What a rank has sent in a step.
std::vector<Operation> messages_of(const Parcel& rank, size_t step) {
  std::vector<Operation> messages = operations_of(rank.part(fmt::format("traffic.{}", step)));
  std::erase_if(messages, [](const Operation& one) { return one.kind >= OpKind::kForward; });
  return messages;
}

std::vector<Operation> of_kind(std::vector<Operation> messages, OpKind kind) {
  std::erase_if(messages, [=](const Operation& one) { return one.kind != kind; });
  return messages;
}

std::string in_step(const Sizes& sizes, size_t r, size_t step) {
  return fmt::format("\nrank {}, step {}, stage {}", r, step + 1, sizes.stage);
}

size_t calls_of_reduce(const Parcel& rank, size_t step) {
  const std::string events = " " + rank.text(fmt::format("events.{}", step));
  size_t calls = 0;
  for (size_t at = events.find(" reduce:"); at != std::string::npos;
       at = events.find(" reduce:", at + 1))
    ++calls;
  return calls;
}

/// One rank's reduce_scatters: one for each part that `parts` names, in this order.
void expect_reduced(const Sizes& sizes, const std::vector<Operation>& reduced, size_t calls,
                    const std::vector<size_t>& parts, const std::string& where) {
  const size_t each = sizes.forward().size();  // in a backward pass
  if (calls == parts.size() && reduced.size() < calls)
    stop(
        fmt::format("reduce_gradient sends {} reduce_scatters in {} calls: one in each, even if "
                    "this rank's gradient is 0, its shard is padding, or there is only one rank{}",
                    reduced.size(), calls, where));
  if (reduced.size() != parts.size() && sizes.stage == 1)
    stop(fmt::format(
        "a step reduces {} gradients of {} parts: stage 1 reduces each part once, after "
        "the last backward pass{}",
        reduced.size(), parts.size(), where));
  if (reduced.size() < parts.size() && reduced.size() % each == 0)
    stop(fmt::format(
        "a step makes {} backward passes of {}: even a microbatch without targets needs "
        "its passes, because stages 2 and 3 send in every one{}",
        reduced.size() / each, parts.size() / each, where));
  if (reduced.size() != parts.size())
    stop(fmt::format(
        "a step sends {} reduce_scatters, expected {}: stages 2 and 3 reduce once in each "
        "part's backward pass, and nowhere else{}",
        reduced.size(), parts.size(), where));
  for (size_t k = 0; k < parts.size(); ++k)
    if (static_cast<double>(reduced[k].bytes) != kFloat * sizes.shard(parts[k]))
      stop(fmt::format(
          "{}{}: reduce_scatter {} of the step sends {} bytes, expected {} of part {}",
          sizes.stage == 1
              ? "parts are not reduced in order from the first to the last"
              : "the number of elements that are reduced is not that of the part's shard",
          where, k + 1, reduced[k].bytes, kFloat * sizes.shard(parts[k]), parts[k]));
}

/// Stage 3: the parts are gathered in the order of their use, and each is posted before the wait
/// for the one before it begins.
void expect_gathered_ahead(const Sizes& sizes, const std::vector<Operation>& gathers,
                           const std::vector<size_t>& parts, const std::string& where) {
  for (size_t k = 0; k < gathers.size(); ++k) {
    const double expected = kFloat * sizes.shard(parts[k]);
    if (static_cast<double>(gathers[k].bytes) != expected)
      stop(fmt::format(
          "open_values does not post all_gathers in the order in which parts are used: first "
          "use.part, then use.next, because they take place one after the other and use.part is "
          "needed now{}: all_gather {} of the step sends {} bytes, expected {} of part {}",
          where, k + 1, gathers[k].bytes, expected, parts[k]));
    const bool ends_pass = (k + 1) % sizes.forward().size() == 0;
    if (!ends_pass && gathers[k].waiting_ns < gathers[k + 1].begin_ns)
      stop(
          fmt::format("open_values waits for part {} before it has posted part {}: post both "
                      "before you wait, so that use.next follows at once{}",
                      parts[k], parts[k + 1], where));
  }
}

/// All parts of a step's passes, in their order: the forward passes, the backward passes, or both.
std::vector<size_t> used_parts(const Sizes& sizes, size_t microbatches, bool forward) {
  const std::vector<size_t> once = sizes.forward();
  std::vector<size_t> parts;
  for (size_t k = 0; k < microbatches; ++k) {
    if (forward) parts.insert(parts.end(), once.begin(), once.end());
    parts.insert(parts.end(), once.rbegin(), once.rend());
  }
  return parts;
}

}  // namespace

double Sizes::all() const { return std::accumulate(part.begin(), part.end(), 0.0); }

double Sizes::largest_shard() const { return std::ranges::max(part) / ranks; }

std::vector<size_t> Sizes::forward() const {
  std::vector<size_t> parts(part.size());
  std::iota(parts.begin(), parts.end(), size_t{0});
  if (tied) parts.push_back(0);
  return parts;
}

std::vector<std::vector<size_t>> Sizes::backward() const {
  std::vector<std::vector<size_t>> uses{{part.size() - 1}};
  if (tied) uses[0].insert(uses[0].begin(), 0);
  for (size_t p = part.size() - 1; p-- > 0;) uses.push_back({p});
  return uses;
}

void expect_traffic(const TrainingCase& c, const Sizes& sizes, const Parcel& rank, size_t r,
                    size_t step) {
  const std::string where = in_step(sizes, r, step);
  std::vector<Operation> messages = messages_of(rank, step);
  const bool targets_first = !messages.empty() && is_number_or_two(messages.front());
  std::erase_if(messages, is_number_or_two);
  for (const Operation& one : messages)
    if (one.kind != OpKind::kAllGather && one.kind != OpKind::kReduceScatter)
      stop(
          fmt::format("a step must send by reduce_scatter and all_gather only, apart from messages "
                      "of a number or two; here is {} of {} bytes{}",
                      lab::op_name(one.kind), one.bytes, where));

  const size_t microbatches = c.steps[step][r].size();
  std::vector<size_t> all_parts(sizes.part.size());
  std::iota(all_parts.begin(), all_parts.end(), size_t{0});
  expect_reduced(sizes, of_kind(messages, OpKind::kReduceScatter), calls_of_reduce(rank, step),
                 sizes.stage == 1 ? all_parts : used_parts(sizes, microbatches, false), where);

  const std::vector<Operation> gathers = of_kind(messages, OpKind::kAllGather);
  const std::vector<size_t> gathered =
      sizes.stage == 3 ? used_parts(sizes, microbatches, true) : all_parts;
  double bytes = 0;
  for (const Operation& one : gathers) bytes += static_cast<double>(one.bytes);
  double expected = 0;
  for (const size_t p : gathered) expected += kFloat * sizes.shard(p);
  if (gathers.size() != gathered.size() || bytes != expected)
    stop(
        fmt::format("a step gathers {} than it should: {} all_gathers of {:.0f} bytes together, "
                    "expected {} of {:.0f}{}",
                    gathers.size() + bytes > gathered.size() + expected ? "more" : "less",
                    gathers.size(), bytes, gathered.size(), expected, where));
  if (sizes.stage == 3) expect_gathered_ahead(sizes, gathers, gathered, where);
  if (sizes.ranks > 1 && !targets_first)
    stop(
        fmt::format("the targets of all ranks must be added up first, by a message before any "
                    "pass, but the first message of this step is another one{}",
                    where));
}

void expect_numbers_sent(const TrainingCase& c, const Parcel& rank, size_t r, size_t step) {
  const auto sent =
      static_cast<size_t>(std::ranges::count_if(messages_of(rank, step), is_number_or_two));
  const size_t needed = c.max_norm > 0 ? 2 : 1;
  const std::string where = fmt::format("\nrank {}, step {}", r, step + 1);
  if (sent > needed)
    stop(fmt::format(
        "a step sends {} messages of a number or two, {} too many: one adds up the targets of all "
        "microbatches and ranks{}{}",
        sent, sent - needed,
        c.max_norm > 0 ? ", one the squares of their gradients"
                       : ", and there is nothing to clip; the loss stays this rank's part",
        where));
  if (sent < needed && c.ranks() > 1)
    stop(
        fmt::format("a step sends {} messages of a number or two, expected {}: what other ranks "
                    "have cannot be known without a message{}",
                    sent, needed, where));
}

}  // namespace lab09
