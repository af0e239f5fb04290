// FlightRecorder: writes a process's operations into its flight record.
#include "common/comm/diagnosis/flight_recorder.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "common/comm/diagnosis/flight_recorder_file.h"
#include "common/error.h"

namespace lab {
namespace {

using Layout = FlightRecordLayout;

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

/// Keeps the version odd from construction to destruction.
class Entry {
 public:
  explicit Entry(Layout& layout) : layout_(layout), version_(layout.version.load()) {
    layout_.version.store(version_ + 1, std::memory_order_relaxed);
  }
  ~Entry() { layout_.version.store(version_ + 2, std::memory_order_release); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  Layout& layout_;
  uint64_t version_;
};

/// Gives each stream a place in `recent`; when all are taken, that of the least recently used
/// stream.
class StreamPlaces {
 public:
  size_t place_of(const OpRecord& op) {
    const Stream stream{op.kind, op.group, op.peer, op.tag};
    auto [found, is_new] = places_.try_emplace(stream, places_.size());
    if (is_new && found->second == kMaxRecent) {
      const auto oldest = std::ranges::min_element(used_);
      found->second = static_cast<size_t>(oldest - used_.begin());
      places_.erase(streams_[found->second]);
    }
    streams_[found->second] = stream;
    used_[found->second] = ++uses_;
    return found->second;
  }
  size_t size() const { return places_.size(); }

 private:
  using Stream = std::tuple<OpKind, uint32_t, int32_t, int32_t>;
  std::map<Stream, size_t> places_;
  std::array<Stream, kMaxRecent> streams_;
  std::array<uint64_t, kMaxRecent> used_{};
  uint64_t uses_ = 0;
};

/// Makes a name printable on one line.
std::string clean_name(std::string name) {
  if (name.size() > kMaxGroupName) {
    size_t end = kMaxGroupName;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;  // UTF-8
    name.resize(end);
  }
  std::ranges::replace_if(
      name, [](unsigned char c) { return c < ' ' || c == 127; }, '?');
  return name;
}

bool same_stream(const OpRecord& a, const OpRecord& b) {
  return a.kind == b.kind && a.group == b.group && a.peer == b.peer && a.tag == b.tag;
}

}  // namespace

struct FlightRecorder::Impl {
  mutable std::mutex mutex;
  int rank = 0;
  Clock clock;
  FlightRecordFile file;
  uint64_t last_id = 0;
  int microbatch = -1;
  std::unordered_map<uint64_t, size_t> places;  // of pending operations, by id
  std::unordered_map<uint32_t, size_t> groups;  // places, by id
  StreamPlaces streams;

  Impl(int own_rank, const std::filesystem::path& path, Clock time)
      : rank(own_rank),
        clock(time ? std::move(time) : Clock(monotonic_ns)),
        file(FlightRecordFile::create(path)) {}

  Layout& layout() { return file.layout(); }

  size_t free_place() const;
  void mark(size_t place, bool in_use) {
    Shared<uint64_t>& word = layout().used[place / 64];
    const uint64_t bit = uint64_t{1} << (place % 64);
    word.store(in_use ? word.load() | bit : word.load() & ~bit);
  }
  void enter_collective(const OpRecord& record);
  void keep_as_recent(const OpRecord& record);
};

size_t FlightRecorder::Impl::free_place() const {
  const auto& used = file.layout().used;
  for (size_t word = 0; word < used.size(); ++word) {
    const uint64_t bits = used[word].load();
    if (~bits != 0) return 64 * word + static_cast<size_t>(std::countr_one(bits));
  }
  fail(
      "more than 1,024 operations are pending on rank {}: is something posted and never waited "
      "for?",
      rank);
}

void FlightRecorder::Impl::enter_collective(const OpRecord& record) {
  Shared<Layout::Group>& place = layout().groups[groups.at(record.group)];
  Layout::Group group = place.load();
  group.collectives = std::max(group.collectives, record.sequence);
  place.store(group);
}

void FlightRecorder::Impl::keep_as_recent(const OpRecord& record) {
  Shared<OpRecord>& place = layout().recent[streams.place_of(record)];
  const OpRecord before = place.load();
  const bool older = before.id != 0 && same_stream(before, record) &&
                     before.sequence > record.sequence;  // waited for out of order
  if (!older) place.store(record);
  layout().recent_count.store(streams.size());
}

FlightRecorder::FlightRecorder(int rank, const std::filesystem::path& path, Clock clock) {
  require(rank >= 0 && rank < kMaxWorldSize, "flight record: rank {} lies outside [0, {}]", rank,
          kMaxWorldSize - 1);
  impl_ = std::make_unique<Impl>(rank, path, std::move(clock));
  impl_->layout().head.store({.rank = rank, .pid = getpid()});
  impl_->layout().magic.store(Layout::kMagic);
  impl_->file.publish();
}

FlightRecorder::~FlightRecorder() = default;

void FlightRecorder::add_group(uint32_t id, uint64_t members, const std::string& name) {
  const std::lock_guard lock(impl_->mutex);
  const size_t place = impl_->groups.try_emplace(id, impl_->groups.size()).first->second;
  if (place == kMaxGroups) {
    impl_->groups.erase(id);
    fail("rank {} belongs to more than {} groups: split once, before the loop", impl_->rank,
         kMaxGroups);
  }
  Layout::Group group = impl_->layout().groups[place].load();
  group.id = id;
  group.members = members;
  group.name = {};
  std::ranges::copy(clean_name(name), group.name.begin());
  const Entry entry(impl_->layout());
  impl_->layout().groups[place].store(group);
  impl_->layout().group_count.store(impl_->groups.size());
}

uint64_t FlightRecorder::posted(OpRecord record) {
  const std::lock_guard lock(impl_->mutex);
  require(!is_collective(record.kind) || impl_->groups.contains(record.group),
          "flight record of rank {}: {} in a group that it does not know", impl_->rank,
          op_name(record.kind));
  const size_t place = impl_->free_place();
  record.id = ++impl_->last_id;
  record.state = OpState::kPosted;
  if (record.microbatch < 0) record.microbatch = impl_->microbatch;
  record.posted_ns = impl_->clock();
  record.waiting_ns = 0;
  record.done_ns = 0;
  impl_->places.emplace(record.id, place);

  Layout& layout = impl_->layout();
  const Entry entry(layout);
  layout.pending[place].store(record);
  impl_->mark(place, true);
  if (is_collective(record.kind)) impl_->enter_collective(record);
  Shared<Traffic>& traffic = layout.traffic[static_cast<size_t>(record.kind)];
  const Traffic before = traffic.load();
  traffic.store({before.operations + 1, before.bytes + record.bytes});
  return record.id;
}

void FlightRecorder::waiting(uint64_t id) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->places.find(id);
  if (found == impl_->places.end()) return;
  Shared<OpRecord>& place = impl_->layout().pending[found->second];
  OpRecord record = place.load();
  record.state = OpState::kWaiting;
  record.waiting_ns = impl_->clock();
  const Entry entry(impl_->layout());
  place.store(record);
}

void FlightRecorder::done(uint64_t id) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->places.find(id);
  if (found == impl_->places.end()) return;
  const size_t place = found->second;
  impl_->places.erase(found);
  Layout& layout = impl_->layout();
  OpRecord record = layout.pending[place].load();
  record.state = OpState::kDone;
  record.done_ns = impl_->clock();

  const Entry entry(layout);
  if (is_message(record.kind)) impl_->keep_as_recent(record);
  impl_->mark(place, false);
  const uint64_t count = layout.history_count.load();
  layout.history[count % Layout::kHistory].store(record);
  layout.history_count.store(count + 1);
}

int FlightRecorder::set_microbatch(int microbatch) {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->microbatch, microbatch);
}

void FlightRecorder::leave() {
  const std::lock_guard lock(impl_->mutex);
  Layout::Head head = impl_->layout().head.load();
  head.left = 1;
  const Entry entry(impl_->layout());
  impl_->layout().head.store(head);
}

RankSnapshot FlightRecorder::snapshot() const {
  const std::lock_guard lock(impl_->mutex);
  RankSnapshot snapshot = copy_snapshot(impl_->file.layout());
  snapshot.taken_ns = impl_->clock();
  return snapshot;
}

std::vector<OpRecord> FlightRecorder::history() const {
  const std::lock_guard lock(impl_->mutex);
  return copy_history(impl_->file.layout());
}

std::filesystem::path flight_record_path(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("rank{}.flight", rank);
}

RankSnapshot read_flight_snapshot(const std::filesystem::path& path) {
  const FlightRecordFile file = FlightRecordFile::open(path);
  const int64_t now = monotonic_ns();  // before the copy: what it shows may be newer, never older
  RankSnapshot snapshot = copy_snapshot(file.layout());
  snapshot.taken_ns = now;
  return snapshot;
}

FlightRecord read_flight_record(const std::filesystem::path& path) {
  FlightRecord record{.snapshot = read_flight_snapshot(path), .history = {}};
  record.history = copy_history(FlightRecordFile::open(path).layout());
  return record;
}

}  // namespace lab
