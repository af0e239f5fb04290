// RankSnapshot: what the rank waits for; and as bytes for the store, little-endian, field by field,
// checked on arrival.
#include "common/comm/diagnosis/rank_snapshot.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/error.h"

namespace lab {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kMagic = 0x3353524c;  // "LRS3"

class Writer {
 public:
  template <typename T>
  void operator()(const T& value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<uint8_t>(text.size()));
    bytes_ += text;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <typename T>
  void operator()(T& value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    std::memcpy(&value, part(sizeof value).data(), sizeof value);
  }
  void operator()(std::string& text) {
    uint8_t length = 0;
    (*this)(length);
    text = part(length);
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view part(size_t length) {
    require(rest_.size() >= length, "the snapshot of a rank is cut short");
    const std::string_view front = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return front;
  }
  std::string_view rest_;
};

template <typename Codec, typename... Fields>
void visit(Codec& codec, Fields&... fields) {
  (codec(fields), ...);
}

// Both directions visit the same fields in the same order.
template <typename Codec, typename Op>
void visit_op(Codec& codec, Op& op) {
  visit(codec, op.id, op.kind, op.state, op.group, op.peer, op.tag, op.microbatch, op.bytes,
        op.sequence, op.posted_ns, op.started_ns, op.finished_ns, op.waiting_ns, op.done_ns);
}

template <typename Codec, typename Group>
void visit_group(Codec& codec, Group& group) {
  visit(codec, group.id, group.members, group.collectives, group.name);
}

template <typename Codec, typename Snapshot>
void visit_head(Codec& codec, Snapshot& snapshot) {
  visit(codec, snapshot.rank, snapshot.pid, snapshot.fate, snapshot.status, snapshot.epoch,
        snapshot.taken_ns);
  for (auto& traffic : snapshot.traffic) visit(codec, traffic.operations, traffic.bytes);
}

void check(bool good, const char* what) {
  require(good, "the snapshot of a rank is bad: {}", what);
}

void check_name(const std::string& name) {
  check(name.size() <= kMaxGroupName, "a group's name is too long");
  check(std::ranges::none_of(name, [](unsigned char c) { return c < ' ' || c == 127; }),
        "a group's name has control characters");
}

void check_op(const OpRecord& op) {
  check(static_cast<size_t>(op.kind) < kOpKinds, "there is no such operation");
  check(op.state <= OpState::kDone, "there is no such state");
  check(op.peer >= -1 && op.peer < kMaxWorldSize, "there is no such peer");
}

void check_all(const RankSnapshot& snapshot) {
  check(snapshot.rank >= 0 && snapshot.rank < kMaxWorldSize, "there is no such rank");
  check(snapshot.fate <= RankFate::kSilent, "there is no such fate");
  check(snapshot.pending.size() <= kMaxPending, "too many pending operations");
  check(snapshot.recent.size() <= kMaxRecent, "too many recent operations");
  check(snapshot.groups.size() <= kMaxGroups, "too many groups");
  for (const OpRecord& op : snapshot.pending) check_op(op);
  for (const OpRecord& op : snapshot.recent) check_op(op);
  for (const GroupRecord& group : snapshot.groups) check_name(group.name);
}

template <typename T, typename Visit>
void write_list(Writer& write, const std::vector<T>& list, const Visit& visit) {
  write(static_cast<uint32_t>(list.size()));
  for (const T& entry : list) visit(entry);
}

template <typename T, typename Visit>
void read_list(Reader& read, std::vector<T>& list, size_t limit, const Visit& visit) {
  uint32_t count = 0;
  read(count);
  check(count <= limit, "a list is too long");
  list.resize(count);
  for (T& entry : list) visit(entry);
}

}  // namespace

const OpRecord* RankSnapshot::waiting() const {
  // A wait that broke off stays in the list; the rank is held up by the one that began last.
  const OpRecord* latest = nullptr;
  for (const OpRecord& op : pending)
    if (op.state == OpState::kWaiting && (latest == nullptr || op.waiting_ns >= latest->waiting_ns))
      latest = &op;
  return latest;
}

std::string encode_snapshot(const RankSnapshot& snapshot) {
  check_all(snapshot);
  Writer write;
  write(kMagic);
  visit_head(write, snapshot);
  write(static_cast<uint8_t>(snapshot.left));
  const auto op = [&](const OpRecord& record) { visit_op(write, record); };
  write_list(write, snapshot.pending, op);
  write_list(write, snapshot.recent, op);
  write_list(write, snapshot.groups, [&](const GroupRecord& group) { visit_group(write, group); });
  return write.take();
}

RankSnapshot decode_snapshot(const std::string& bytes) {
  check(bytes.size() <= kMaxSnapshotBytes, "too many bytes");
  Reader read(bytes);
  uint32_t magic = 0;
  read(magic);
  check(magic == kMagic, "it is not a snapshot, or is from another version of the workbook");
  RankSnapshot snapshot;
  visit_head(read, snapshot);
  uint8_t left = 0;
  read(left);
  check(left <= 1, "a truth value is neither 0 nor 1");
  snapshot.left = left == 1;
  const auto op = [&](OpRecord& record) { visit_op(read, record); };
  read_list(read, snapshot.pending, kMaxPending, op);
  read_list(read, snapshot.recent, kMaxRecent, op);
  read_list(read, snapshot.groups, kMaxGroups,
            [&](GroupRecord& group) { visit_group(read, group); });
  check(read.at_end(), "bytes are left over");
  check_all(snapshot);
  return snapshot;
}

}  // namespace lab
