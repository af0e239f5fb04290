// The command-line options about ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/run/rendezvous/rank_environment.h"

namespace lab {

void add_launch_options(CLI::App& app, LaunchOptions& options) {
  const auto add = [&](const char* name, auto& value, const char* type, const std::string& text) {
    return app.add_option(name, value, text)->type_name(type)->group("Ranks")->configurable(false);
  };
  const auto within = [](int64_t least, int64_t most) {
    return CLI::Validator(
        [=](std::string& text) -> std::string {
          int64_t value = 0;
          if (!CLI::detail::lexical_cast(text, value) || value < least || value > most)
            return fmt::format("{} does not lie between {} and {}", text, least, most);
          return "";
        },
        "");
  };
  add("--ranks", options.ranks, "N",
      "start N ranks on this machine and watch over them; with --nnodes: N on all hosts together")
      ->check(within(1, kMaxWorldSize));
  add("--nnodes", options.nnodes, "N", "hosts, each with a command like this and as many ranks")
      ->check(within(1, kMaxWorldSize));
  add("--node-rank", options.node_rank, "N", "which of them this host is, from 0")
      ->check(within(0, kMaxWorldSize - 1));
  add("--rank", options.rank, "N", "be rank N of a job that is started by hand, from 0")
      ->check(within(0, kMaxWorldSize - 1));
  add("--world-size", options.world_size, "N", "number of ranks of that job")
      ->check(within(1, kMaxWorldSize));
  add("--master-addr", options.master_addr, "ADDRESS",
      "where rank 0 is, on host 0; default: 127.0.0.1");
  add("--master-port", options.master_port, "PORT",
      fmt::format("where rank 0 listens; default: {}", kDefaultMasterPort))
      ->check(within(1, 65535));
  add("--store", options.store, "FOLDER",
      "fresh and seen by all ranks, in place of --master-addr and --master-port");
  add("--bind", options.interface_addr, "ADDRESS",
      "of this machine, where other ranks reach it; default: 127.0.0.1, or towards --master-addr");
  add("--timeout", options.timeout_s, "SECONDS", "longest wait for other ranks")
      ->capture_default_str();
}

}  // namespace lab
