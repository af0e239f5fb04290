// The command-line options about ranks.
#include <fmt/format.h>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/run/options/command_line.h"
#include "common/run/rendezvous/rank_environment.h"

namespace lab {

void add_launch_options(CommandLine& line, LaunchOptions& options) {
  line.group("Ranks");
  const auto add = [&](const char* name, auto& value, const char* type, const std::string& text) {
    return line.add(name, value, type, text).not_in_file();
  };
  add("--ranks", options.ranks, "N",
      "start N ranks on this machine and watch over them; with --nnodes: N on all hosts together")
      .within(1, kMaxWorldSize);
  add("--nnodes", options.nnodes, "N",
      "number of hosts; run this command on each of them; ranks are divided equally")
      .within(1, kMaxWorldSize);
  add("--node-rank", options.node_rank, "N", "which of them this host is, from 0")
      .within(0, kMaxWorldSize - 1);
  add("--rank", options.rank, "N", "be rank N (from 0) of a job that is started by hand")
      .within(0, kMaxWorldSize - 1);
  add("--world-size", options.world_size, "N", "number of ranks of that job")
      .within(1, kMaxWorldSize);
  add("--master-addr", options.master_addr, "ADDRESS",
      "where rank 0 is, on host 0; default: 127.0.0.1");
  add("--master-port", options.master_port, "PORT",
      fmt::format("where rank 0 listens; default: {}", kDefaultMasterPort))
      .within(1, 65535);
  add("--store", options.store, "FOLDER",
      "new folder that all ranks see, instead of --master-addr and --master-port");
  add("--bind", options.interface_addr, "ADDRESS",
      "address of this machine at which other ranks reach it; default: 127.0.0.1, or the one "
      "towards --master-addr");
  add("--timeout", options.timeout_s, "SECONDS", "longest wait for other ranks").shows_default();
  line.group("");
}

}  // namespace lab
