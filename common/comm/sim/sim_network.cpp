// SimNetwork: matching, delivery and the ends of ranks.
#include "common/comm/sim/sim_network.h"

#include <algorithm>
#include <cmath>

#include "common/error.h"

namespace lab {
namespace {

// Steps of simulated time: more than the program of any test takes.
constexpr int64_t kSlowLinkDelay = 1'000'000'000;

// What a step of a ring moves over each link: the part of one member.
double share_bytes(const SimNetwork::Part& part, size_t members) {
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

SimNetwork::SimNetwork(const SimulationOptions& options, Scheduler& scheduler)
    : options_(options),
      scheduler_(scheduler),
      random_(options.seed),
      ranks_(static_cast<size_t>(options.ranks)) {
  if (options.costs) clock_.emplace(*options.costs, options.ranks);
}

int64_t SimNetwork::now(int rank) const {
  return clock_ ? 1 + std::llround(1e9 * clock_->now(rank)) : now_;
}

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

void SimNetwork::wait(const SimPost& post) {
  if (!post.done) {
    check_alive(post.rank);
    scheduler_.wait_until(post.rank, [&] { return post.done || !stopped_.empty(); });
    if (!post.done) throw RankStop{stopped_};
  }
  if (clock_) clock_->wait_until(post.rank, post.end);
}

void SimNetwork::collective(const Meeting& meeting, const std::vector<int>& members, int member,
                            const Part& part, int rounds, const Combine& combine) {
  const int rank = members[static_cast<size_t>(member)];
  begin_operation(rank);
  std::shared_ptr<Gathering>& entry = gatherings_[meeting];
  if (entry == nullptr) {
    entry = std::make_shared<Gathering>();
    entry->parts.resize(members.size());
    entry->done.resize(members.size());
  }
  const std::shared_ptr<Gathering> gathering = entry;
  gathering->parts[static_cast<size_t>(member)] = part;
  if (clock_) gathering->posted = std::max(gathering->posted, clock_->now(rank));
  if (++gathering->arrived == static_cast<int>(members.size())) {
    gatherings_.erase(meeting);
    for (const Part& other : gathering->parts)
      require(other.input.size() == part.input.size() && other.output.size() == part.output.size(),
              "simulated network: the parts of a collective differ in size");
    combine(gathering->parts);
    if (clock_) {
      clock_->add({.members = members,
                   .collective = true,
                   .rounds = rounds,
                   .bytes = share_bytes(part, members.size()),
                   .posted = gathering->posted,
                   .order = rank_at(members[0]).operations,
                   .done = [gathering](double end) {
                     gathering->end = end;
                     gathering->done.assign(gathering->done.size(), true);
                   }});
    } else {
      for (size_t i = 0; i < gathering->done.size(); ++i)
        deliver_later([gathering, i] { gathering->done[i] = true; }, delay());
      deliver_due();
    }
  }
  const auto done = [&]() -> bool { return gathering->done[static_cast<size_t>(member)]; };
  scheduler_.wait_until(rank, [&] { return done() || !stopped_.empty(); });
  if (!done()) throw RankStop{stopped_};
  if (clock_) clock_->wait_until(rank, gathering->end);
}

bool SimNetwork::deliver_next() {
  if (clock_) return clock_->run_next();
  if (deliveries_.empty()) return false;
  now_ = std::max(now_, deliveries_.begin()->first);
  deliver_due();
  return true;
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
    clock_->add({.members = {address.from, address.to},
                 .bytes = static_cast<double>(send->source.size_bytes()),
                 .posted = std::max(send->posted, recv->posted),
                 .order = send->order,
                 .done = [this, send, recv](double end) { deliver(*send, *recv, end); }});
    return;
  }
  deliver_later([this, send, recv] { deliver(*send, *recv, 0); }, delay(address));
  deliver_due();
}

void SimNetwork::deliver(SimPost& send, SimPost& recv, double end) const {
  const auto gone = [&](int rank) { return ranks_[static_cast<size_t>(rank)].gone; };
  if ((gone(send.rank) && !send.buffered) || gone(recv.rank)) return;
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
