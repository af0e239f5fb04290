// Scripts of single calls and whole simulated schedules, as tests of tasks 1 to 4 use them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/labs/11_parameter_server/history.h"

namespace lab11 {

struct Step {
  entries::Operation operation = entries::kPull;
  int64_t argument = 0;  // worker or ticket
  int64_t samples = 1;
  int server = 0;
};

struct Script {
  std::string name;
  int64_t n = 1;
  int64_t s = 0;
  int64_t items = 100;
  std::vector<Step> steps = {};
  int servers = 1;
  State start = {};       // of each server
  int64_t diverged = -1;  // the ticket whose gradient is infinite
};

/// A server after `steps` random operations, and its workers: few or many, with any numbers; any n
/// and s; small and large versions, tickets and items.
struct Drawn {
  Oracle server;
  std::vector<int64_t> workers;
};
Drawn drawn_server(std::mt19937_64& random, int steps, int64_t elements = 1);

/// Random operations that the server of the contract answers: also pushes of tickets that are no
/// longer valid, and workers that ask again or leave, one by one or all at once.
Script drawn_script(uint64_t seed);
std::vector<Script> drawn_scripts(uint64_t first_seed, size_t count);

/// `task`: the one that is judged; the other functions are correct ones.
void expect_scripts(const std::vector<Script>& scripts, const std::string& task);

/// Whole runs, drawn from the seed: workers of different speed that die and join, messages that are
/// lost, late and repeated. Every call is judged, and that the run comes to its end with every item
/// used once.
void expect_schedules(const std::string& task, int calls, int schedules_per_call);

/// The simulated seconds of a run in which nothing goes wrong.
double calm_seconds(const std::string& task, int64_t n, int64_t s, int64_t items,
                    const std::vector<double>& compute_s);

}  // namespace lab11
