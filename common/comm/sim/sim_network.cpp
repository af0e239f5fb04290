// SimNetwork: matching, delivery and the ends of ranks.
#include "common/comm/sim/sim_network.h"

#include <algorithm>
#include <cmath>

#include "common/error.h"

namespace lab {
namespace {

// Steps of simulated time: more than the program of any test takes.
constexpr int64_t kSlowLinkDelay = 1'000'000'000;

/// As in records, where 0 stands for "not yet".
int64_t in_ns(double seconds) { return 1 + std::llround(1e9 * seconds); }

// What a step of a ring moves over each link: the part of one member.
double share_bytes(const SimPart& part, size_t members) {
  const size_t all = std::max(part.input.size_bytes(), part.output.size_bytes());
  return static_cast<double>(all) / static_cast<double>(members);
}

}  // namespace

void SimPost::abandon() {
  if (done) return;
  copy.assign(source.begin(), source.end());
  source = copy;
  discard = true;
}

void SimEntry::abandon() {
  started = finished = nullptr;
  if (done) return;
  copy.assign(part.input.begin(), part.input.end());
  discarded.resize(part.output.size());
  part = {copy, discarded};
}

SimNetwork::SimNetwork(const SimulationOptions& options, Scheduler& scheduler)
    : options_(options),
      scheduler_(scheduler),
      random_(options.seed),
      ranks_(static_cast<size_t>(options.ranks)) {
  if (options.costs) clock_.emplace(*options.costs, options.ranks);
}

int64_t SimNetwork::now(int rank) const { return clock_ ? in_ns(clock_->now(rank)) : now_; }

void SimNetwork::advance_clock(int rank, double seconds) {
  if (clock_) clock_->compute(rank, seconds);
}

std::shared_ptr<SimPost> SimNetwork::send(const Address& address, std::span<const float> data) {
  begin_operation(address.from);
  auto post = std::make_shared<SimPost>();
  post->rank = address.from;
  post->order = rank_at(address.from).operations;
  if (clock_) post->posted = clock_->now(post->rank);
  post->source = data;
  if (options_.buffered_bytes > 0 && data.size_bytes() <= options_.buffered_bytes) {
    post->copy.assign(data.begin(), data.end());
    post->source = post->copy;
    post->buffered = post->done = true;
  }
  channels_[address].sends.push_back(post);
  match(address);
  return post;
}

std::shared_ptr<SimPost> SimNetwork::recv(const Address& address, std::span<float> data) {
  begin_operation(address.to);
  auto post = std::make_shared<SimPost>();
  post->rank = address.to;
  if (clock_) post->posted = clock_->now(post->rank);
  post->target = data;
  channels_[address].recvs.push_back(post);
  match(address);
  return post;
}

void SimNetwork::wait(const SimSide& side) {
  if (!side.done) {
    check_alive(side.rank);
    scheduler_.wait_until(side.rank, [&] { return side.done || side.broken || !stopped_.empty(); });
    require(!side.broken, "a rank that it waits for has ended");
    if (!side.done) throw RankStop{stopped_};
  }
  if (clock_) clock_->wait_until(side.rank, side.end);
}

void SimNetwork::enter(const Collective& call, int member, std::shared_ptr<SimEntry> entry) {
  begin_operation(entry->rank);
  const size_t members = call.members.size();
  std::shared_ptr<Gathering>& place = gatherings_[{call.group, call.tag}];
  if (place == nullptr) {
    place = std::make_shared<Gathering>();
    place->call = call;
    place->entries.resize(members);
  }
  const std::shared_ptr<Gathering> gathering = place;
  if (clock_) gathering->posted = std::max(gathering->posted, clock_->now(entry->rank));
  gathering->entries[static_cast<size_t>(member)] = std::move(entry);
  queues_[{call.group, member}].push_back(gathering);
  if (++gathering->arrived == members) gatherings_.erase({call.group, call.tag});
  start_next_of(call.group, members);
}

void SimNetwork::start_next_of(const std::string& group, size_t members) {
  while (true) {
    const auto& first = queues_[{group, 0}];
    if (first.empty()) return;
    const std::shared_ptr<Gathering> next = first.front();
    for (size_t i = 0; i < members; ++i) {
      const auto& queue = queues_[{group, static_cast<int>(i)}];
      if (queue.empty() || queue.front() != next) return;
    }
    for (size_t i = 0; i < members; ++i) queues_[{group, static_cast<int>(i)}].pop_front();
    start(next);
  }
}

void SimNetwork::start(const std::shared_ptr<Gathering>& gathering) {
  const SimPart& first = gathering->entries[0]->part;
  for (const auto& entry : gathering->entries) {
    if (gone(entry->rank)) {  // what it had entered is lost
      for (const auto& lost : gathering->entries) lost->broken = breaks_off();
      return;
    }
    require(entry->part.input.size() == first.input.size() &&
                entry->part.output.size() == first.output.size(),
            "simulated network: the parts of a collective differ in size");
  }
  if (clock_) {
    const auto& members = gathering->call.members;
    clock_->add({.members = members,
                 .collective = true,
                 .rounds = gathering->call.rounds,
                 .bytes = share_bytes(first, members.size()),
                 .posted = gathering->posted,
                 .order = rank_at(members[0]).operations,
                 .done = [this, gathering](double begin, double end) {
                   for (size_t i = 0; i < gathering->entries.size(); ++i) {
                     if (const auto& told = gathering->entries[i]->started) told(in_ns(begin));
                     deliver(*gathering, i, end);
                   }
                 }});
    return;
  }
  for (size_t i = 0; i < gathering->entries.size(); ++i) {
    if (const auto& told = gathering->entries[i]->started) told(0);
    int64_t& last = last_due_[{gathering->call.group, static_cast<int>(i)}];
    last = std::max(last, now_ + delay());
    deliver_later([this, gathering, i] { deliver(*gathering, i, 0); }, last - now_);
  }
  deliver_due();
}

/// The first delivery combines what all members have contributed by then.
void SimNetwork::deliver(Gathering& gathering, size_t member, double end) {
  if (gathering.results.empty()) {
    std::vector<SimPart> parts;
    // Into memory of its own: a member's result must not change the input of another one.
    for (const auto& entry : gathering.entries) {
      const std::span<float> output = entry->part.output;
      std::vector<float>& result = gathering.results.emplace_back(output.begin(), output.end());
      parts.push_back({entry->part.input, result});
    }
    gathering.call.combine(parts);
  }
  SimEntry& entry = *gathering.entries[member];
  std::ranges::copy(gathering.results[member], entry.part.output.begin());
  entry.done = true;
  entry.end = end;
  if (entry.finished) entry.finished(clock_ ? in_ns(end) : 0);
}

bool SimNetwork::deliver_next() {
  if (clock_) return clock_->run_next();
  if (deliveries_.empty()) return false;
  now_ = std::max(now_, deliveries_.begin()->first);
  deliver_due();
  return true;
}

bool SimNetwork::break_off() {
  if (!breaks_off()) return false;
  bool any = false;
  const auto breaks = [&](SimSide& side) {
    if (!side.done && !side.broken && !gone(side.rank)) any = side.broken = true;
  };
  for (const auto& [address, channel] : channels_) {
    if (gone(address.from))
      for (const auto& recv : channel.recvs) breaks(*recv);
    if (gone(address.to))
      for (const auto& send : channel.sends) breaks(*send);
  }
  for (const auto& [member, queue] : queues_)
    for (const auto& gathering : queue)
      if (std::ranges::any_of(gathering->call.members, [&](int rank) { return gone(rank); }))
        for (const auto& entry : gathering->entries)
          if (entry != nullptr) breaks(*entry);
  return any;
}

void SimNetwork::stop(const std::string& why) { stopped_ = why; }

// One step of time. Throws RankStop if the rank dies now, or should have ended.
void SimNetwork::begin_operation(int rank) {
  check_alive(rank);
  Rank& self = rank_at(rank);
  ++self.operations;
  if (options_.death && options_.death->rank == rank &&
      options_.death->operation == self.operations) {
    self.killed = self.gone = true;
    check_alive(rank);
  }
  ++now_;
  deliver_due();
}

void SimNetwork::check_alive(int rank) const {
  if (!stopped_.empty()) throw RankStop{stopped_};
  if (killed(rank))
    throw RankStop{
        fmt::format("killed at operation {}", ranks_[static_cast<size_t>(rank)].operations)};
}

void SimNetwork::match(const Address& address) {
  const auto found = channels_.find(address);
  Channel& channel = found->second;
  if (channel.sends.empty() || channel.recvs.empty()) return;  // so one of them stays empty
  const auto send = channel.sends.front();
  const auto recv = channel.recvs.front();
  channel.sends.pop_front();
  channel.recvs.pop_front();
  if (channel.sends.empty() && channel.recvs.empty()) channels_.erase(found);
  require(send->source.size() == recv->target.size(),
          "simulated network: the two sides of a message differ in size");
  if (clock_) {
    clock_->add(
        {.members = {address.from, address.to},
         .bytes = static_cast<double>(send->source.size_bytes()),
         .posted = std::max(send->posted, recv->posted),
         .order = send->order,
         .done = [this, send, recv](double /*begin*/, double end) { deliver(*send, *recv, end); }});
    return;
  }
  deliver_later([this, send, recv] { deliver(*send, *recv, 0); }, delay(address));
  deliver_due();
}

void SimNetwork::deliver(SimPost& send, SimPost& recv, double end) const {
  if ((gone(send.rank) && !send.buffered) || gone(recv.rank)) {
    send.broken = recv.broken = breaks_off();
    return;
  }
  if (!recv.discard) std::ranges::copy(send.source, recv.target.begin());
  send.done = recv.done = true;
  send.end = recv.end = end;
}

void SimNetwork::deliver_later(std::function<void()> delivery, int64_t delay) {
  deliveries_.emplace(now_ + delay, std::move(delivery));
}

int64_t SimNetwork::delay() {
  const auto choices = static_cast<uint64_t>(options_.max_delay) + 1;
  return static_cast<int64_t>(random_() % choices);
}

// The clock gets there only when all ranks wait and no other message is on its way.
int64_t SimNetwork::delay(const Address& address) {
  const auto& slow = options_.slow_link;
  const bool is_slow = slow && slow->from == address.from && slow->to == address.to;
  return delay() + (is_slow ? kSlowLinkDelay : 0);
}

void SimNetwork::deliver_due() {
  while (!deliveries_.empty() && deliveries_.begin()->first <= now_) {
    const std::function<void()> delivery = std::move(deliveries_.begin()->second);
    deliveries_.erase(deliveries_.begin());
    delivery();
  }
}

}  // namespace lab
