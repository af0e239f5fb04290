// Lab 11 · gradients.jsonl, with every gradient that arrived; and the state of each worker. Given.
#include "labs/11_parameter_server/main_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/error.h"
#include "common/io/files.h"

namespace lab11 {

using namespace lab;

namespace {

std::string to_json_line(const Arrival& arrival) {
  nlohmann::ordered_json json = {{"ticket", arrival.ticket},
                                 {"item", arrival.item},
                                 {"worker", arrival.worker},
                                 {"version", arrival.version}};
  if (arrival.update) {
    json["update"] = *arrival.update;
    json["staleness"] = *arrival.update - 1 - arrival.version;
  }
  json["samples"] = arrival.samples;
  json["loss"] = arrival.loss;
  return json.dump() + '\n';
}

/// What a resumed run needs of a line; nothing for one that cannot be read, such as the last one of
/// a killed run.
std::optional<Arrival> parse_json_line(const char* line) {
  try {
    const auto json = nlohmann::json::parse(line);
    Arrival arrival;
    json.at("ticket").get_to(arrival.ticket);
    json.at("item").get_to(arrival.item);
    if (json.contains("update")) arrival.update = json["update"].get<int64_t>();
    return arrival;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

}  // namespace

Ledger::Ledger(std::filesystem::path path, int64_t updates, int64_t n)
    : path_(std::move(path)), least_(static_cast<size_t>(n)) {
  read(updates);
  if (const auto expected = static_cast<size_t>(updates * n); counted_.size() != expected) {
    fmt::print(
        "note: {} does not list the {} gradients of the updates so far: some items near update {} "
        "may count twice, or not at all\n",
        path_.filename().string(), expected, updates);
    counted_.clear();
    for (size_t item = 0; item < expected; ++item) counted_.insert(static_cast<int64_t>(item));
  }
  file_.open(path_, std::ios::app);
  require(file_.is_open(), "cannot write {}: {}", path_.string(), std::strerror(errno));
}

Ledger::~Ledger() {
  file_.close();
  std::error_code ignored;
  if (counted_lines_ < least_) std::filesystem::remove(path_, ignored);
}

void Ledger::read(int64_t updates) {
  std::string kept;
  std::array<char, 4096> line{};  // one has about 110 characters
  for (std::ifstream in(path_); in.getline(line.data(), line.size());) {
    const auto arrival = parse_json_line(line.data());
    if (!arrival) continue;
    next_ticket_ = std::max(next_ticket_, arrival->ticket + 1);
    if (arrival->update.value_or(0) > updates) continue;
    kept += std::string(line.data()) + '\n';
    if (!arrival->update) continue;
    counted_.insert(arrival->item);
    ++counted_lines_;
  }
  write_file(path_, kept);
}

void Ledger::pulled(int worker, const std::optional<Ticket>& ticket, int64_t updates) {
  const bool is_new = !workers_.contains(worker);
  WorkerState& state = workers_[worker];
  if (is_new || state.kind == WorkerState::Kind::kGone) {
    state.joined_s = seconds();
    state.of_this_life = 0;
  }
  state.kind = ticket ? WorkerState::Kind::kComputes : WorkerState::Kind::kWaits;
  if (!ticket) return;
  state.version = updates;
  tickets_[ticket->number] = {.item = ticket->item, .worker = worker, .version = updates};
}

void Ledger::pushed(const Push& push, std::optional<int64_t> update) {
  Arrival arrival{.ticket = push.ticket,
                  .samples = push.gradient.samples,
                  .loss = push.gradient.loss,
                  .update = update};
  if (const auto ticket = tickets_.find(push.ticket); ticket != tickets_.end()) {
    WorkerState& state = workers_[ticket->second.worker];
    if (state.kind == WorkerState::Kind::kComputes) state.kind = WorkerState::Kind::kWaits;
    arrival.item = ticket->second.item;
    arrival.worker = ticket->second.worker;
    arrival.version = ticket->second.version;
  }
  file_ << to_json_line(arrival) << std::flush;
  require(file_.good(), "cannot write {}: {}", path_.string(), std::strerror(errno));
  if (!update) return;
  counted_.insert(arrival.item);
  ++counted_lines_;
  WorkerState& state = workers_[arrival.worker];
  ++state.gradients;
  ++state.of_this_life;
}

void Ledger::left(int worker) {
  const auto state = workers_.find(worker);
  if (state == workers_.end()) return;
  state->second.kind = WorkerState::Kind::kGone;
  state->second.left_s = seconds();
}

}  // namespace lab11
