// Operations as entries of a parcel.
#include "tests/grading/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "common/error.h"
#include "tests/grading/rank_main.h"

namespace lab::grading {
namespace {

constexpr size_t kFields = 12;
constexpr const char* kEntry = "operations";
constexpr const char* kGroups = "operations.groups";

std::map<uint32_t, std::string> group_names(const RankSnapshot& snapshot) {
  std::map<uint32_t, std::string> names;
  for (const GroupRecord& group : snapshot.groups) names[group.id] = group.name;
  return names;
}

/// As `operations_of` reads them; those of `kBetweenCalls` are left out.
void set_operations(std::vector<OpRecord> records, uint64_t last_id,
                    const std::map<uint32_t, std::string>& names, Parcel& result) {
  std::erase_if(records, [&](const OpRecord& record) { return record.id <= last_id; });
  std::ranges::sort(records, {}, &OpRecord::id);
  std::vector<double> numbers;
  std::string groups;
  const int64_t begin = records.empty() ? 0 : records.front().posted_ns;
  for (const OpRecord& record : records) {
    const std::string& group = names.at(record.group);
    if (group == kBetweenCalls) continue;
    groups += group + "\n";
    numbers.insert(
        numbers.end(),
        {static_cast<double>(record.kind), static_cast<double>(record.peer),
         static_cast<double>(record.tag), static_cast<double>(record.microbatch),
         static_cast<double>(record.bytes), static_cast<double>(record.id - last_id),
         static_cast<double>(record.posted_ns - begin), static_cast<double>(record.done_ns - begin),
         static_cast<double>(record.state), static_cast<double>(record.started_ns - begin),
         static_cast<double>(record.finished_ns - begin),
         static_cast<double>(record.waiting_ns - begin)});
  }
  result.set(kEntry, numbers);
  result.set_text(kGroups, groups);
}

std::string posting_verb(const OpRecord& record) {
  if (record.kind == OpKind::kSend) return "isend";
  if (record.kind == OpKind::kRecv) return "irecv";
  return fmt::format("{}_async", op_name(record.kind));
}

std::string posted_in_words(const OpRecord& record) {
  if (is_collective(record.kind))
    return fmt::format("{}({} bytes)", posting_verb(record), record.bytes);
  return fmt::format("{}({} {}, tag {})", posting_verb(record),
                     record.kind == OpKind::kSend ? "to" : "from", record.peer, record.tag);
}

std::string in_words(const Operation& operation) {
  std::string text = fmt::format("{} of {} bytes", op_name(operation.kind), operation.bytes);
  if (is_message(operation.kind))
    text += fmt::format(" {} {} (tag {})", operation.kind == OpKind::kSend ? "to" : "from",
                        operation.peer, operation.tag);
  else if (operation.group != "world")
    text += " in " + operation.group;
  return text;
}

/// Operations one after the other that look alike.
struct Run {
  std::string words;
  size_t begin = 0;
  size_t count = 0;
};

std::vector<Run> runs_of(const std::vector<Operation>& operations) {
  std::vector<Run> runs;
  for (size_t i = 0; i < operations.size(); ++i) {
    std::string words = in_words(operations[i]);
    if (runs.empty() || runs.back().words != words)
      runs.push_back({.words = std::move(words), .begin = i});
    ++runs.back().count;
  }
  return runs;
}

}  // namespace

uint64_t last_operation(const FlightRecorder& recorder) {
  uint64_t last = 0;
  for (const OpRecord& record : recorder.history()) last = std::max(last, record.id);
  return last;
}

void note_operations(const FlightRecorder& recorder, uint64_t last_id, Parcel& result) {
  const RankSnapshot snapshot = recorder.snapshot();
  const std::map<uint32_t, std::string> names = group_names(snapshot);
  for (const OpRecord& record : snapshot.pending)
    require((!is_message(record.kind) && !is_collective(record.kind)) ||
                names.at(record.group) == kAbandoned,
            "{} was posted, and nobody has waited for it: keep the Work that {} returns, and call "
            "wait() before the function returns",
            posted_in_words(record), posting_verb(record));
  set_operations(recorder.history(), last_id, names, result);
}

Parcel unfinished_operations(const RankSnapshot& snapshot, const std::vector<OpRecord>& history) {
  const std::map<uint32_t, std::string> names = group_names(snapshot);
  uint64_t last = 0;  // of the calls before
  for (const OpRecord& record : history)
    if (names.at(record.group) == kBetweenCalls) last = std::max(last, record.id);
  const auto split = std::ranges::find(history, OpKind::kSplit, &OpRecord::kind);
  if (last == 0 && split != history.end()) last = split->id;  // that has made kBetweenCalls
  bool returned = false;
  std::vector<OpRecord> records = history;
  for (const OpRecord& record : snapshot.pending) {
    returned = returned || names.at(record.group) == kBetweenCalls;
    records.push_back(record);
  }
  Parcel result;
  set_operations(std::move(records), last, names, result);
  result.set("returned", returned ? 1.0 : 0.0);
  return result;
}

std::vector<Operation> operations_of(const Parcel& result) {
  const std::vector<double> numbers = result.numbers(kEntry);
  std::vector<Operation> operations;
  std::string groups = result.text(kGroups);
  for (size_t i = 0; i + kFields <= numbers.size(); i += kFields) {
    const double* field = &numbers[i];
    const size_t end = groups.find('\n');
    operations.push_back({.kind = static_cast<OpKind>(static_cast<int>(field[0])),
                          .group = groups.substr(0, end),
                          .peer = static_cast<int>(field[1]),
                          .tag = static_cast<int>(field[2]),
                          .microbatch = static_cast<int>(field[3]),
                          .bytes = static_cast<uint64_t>(field[4]),
                          .id = static_cast<int64_t>(field[5]),
                          .begin_ns = static_cast<int64_t>(field[6]),
                          .end_ns = static_cast<int64_t>(field[7]),
                          .state = static_cast<OpState>(static_cast<int>(field[8])),
                          .started_ns = static_cast<int64_t>(field[9]),
                          .finished_ns = static_cast<int64_t>(field[10]),
                          .waiting_ns = static_cast<int64_t>(field[11])});
    groups.erase(0, end + 1);
  }
  return operations;
}

std::string in_words(const std::vector<Operation>& operations, size_t at) {
  constexpr size_t kBefore = 2;
  constexpr size_t kShown = 6;
  const std::vector<Run> all = runs_of(operations);
  size_t first = 0;
  if (all.size() > kShown + kBefore)
    while (first + kBefore + 1 < all.size() && all[first + kBefore + 1].begin <= at) ++first;
  const size_t last =
      all.size() > kShown + kBefore ? std::min(first + kShown, all.size()) : all.size();
  std::string text;
  if (first > 0) text += fmt::format("after {} others ", all[first].begin);
  for (size_t i = first; i < last; ++i)
    text += fmt::format("{}{}{}", i == first ? "" : ", ",
                        all[i].count == 1 ? "" : fmt::format("{} x ", all[i].count), all[i].words);
  if (last < all.size()) text += fmt::format(" and {} more", operations.size() - all[last].begin);
  return text.empty() ? "nothing" : text;
}

}  // namespace lab::grading
