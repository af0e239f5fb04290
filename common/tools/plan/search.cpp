#include "common/tools/plan/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "common/error.h"
#include "common/format.h"

namespace lab {
namespace {

bool same_mesh(const Estimate& a, const Estimate& b) {
  return a.layout.dp == b.layout.dp && a.layout.pp == b.layout.pp;
}

std::string name_of(const Estimate& e) {
  const std::string slices = e.layout.tp > 1 ? fmt::format(" x tp {}", e.layout.tp) : "";
  const std::string shards =
      e.layout.shard > 0 ? fmt::format(" in shards (ZeRO {})", e.layout.shard) : "";
  return fmt::format("dp {} x pp {}{}{} with m {}", e.layout.dp, e.layout.pp, slices, shards,
                     e.layout.m);
}

int64_t percent(double share) { return std::llround(100 * share); }

/// What costs `next` the most, compared with `best`.
std::string main_loss(const Estimate& best, const Estimate& next) {
  struct Loss {
    const char* name;
    double best;
    double next;
  };
  const std::array<Loss, 3> losses = {Loss{"bubble", best.bubble, next.bubble},
                                      {"communication", best.communication, next.communication},
                                      {"update", best.update, next.update}};
  const Loss& most =
      *std::ranges::max_element(losses, {}, [](const Loss& loss) { return loss.next - loss.best; });
  if (percent(most.next) <= percent(most.best)) return "";
  return fmt::format(": it loses {} % of its step to {}, the best {} %", percent(most.next),
                     most.name, percent(most.best));
}

/// "Fewer than 4 stages do not fit into memory. ", if that is true.
std::string least_stages(const std::vector<Estimate>& ranked) {
  const int pp = ranked.front().layout.pp;
  const auto shallower = [&](const Estimate& e) { return e.layout.pp < pp; };
  const bool exist = std::ranges::any_of(ranked, shallower);
  const bool fit =
      std::ranges::any_of(ranked, [&](const Estimate& e) { return shallower(e) && e.fits(); });
  return exist && !fit ? fmt::format("Fewer than {} stages do not fit into memory. ", pp) : "";
}

std::string next_mesh(const std::vector<Estimate>& ranked) {
  const Estimate& best = ranked.front();
  const auto next = std::ranges::find_if(
      ranked, [&](const Estimate& e) { return e.fits() && !same_mesh(e, best); });
  if (next == ranked.end()) return "No other dp x pp fits";
  return fmt::format("The next mesh is {}, {} tokens/s{}", name_of(*next),
                     format_count(std::llround(next->tokens_per_s)), main_loss(best, *next));
}

}  // namespace

std::vector<Layout> layouts(const Training& training, const Cluster& cluster,
                            const SearchOptions& options) {
  const bool one_stage = training.model.tied_head || options.shard > 0;
  const int64_t most_stages = one_stage ? 1 : training.model.layers;
  std::vector<Layout> result;
  const int most_ranks = cluster.devices / options.tp;  // of one slice
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    if (options.fewer ? most_ranks % ranks != 0 : ranks != most_ranks) continue;
    for (int pp = 1; pp <= std::min<int64_t>(ranks, most_stages); ++pp) {
      if (ranks % pp != 0 || training.batch % (ranks / pp) != 0) continue;
      const int dp = ranks / pp;
      const int64_t sequences = training.batch / dp;
      for (int64_t m = 1; m <= sequences; ++m)
        if (sequences % m == 0 && (options.microbatch == 0 || sequences / m == options.microbatch))
          result.push_back({dp, pp, static_cast<int>(m), options.tp, options.shard});
    }
  }
  return result;
}

std::vector<Estimate> search(const Training& training, const Cluster& cluster,
                             const SearchOptions& options) {
  training.validate();
  cluster.validate();
  require(options.microbatch >= 0, "{} sequences a microbatch: give a number above 0",
          options.microbatch);
  require(options.tp >= 1 && cluster.devices % options.tp == 0,
          "{} devices cannot be divided into groups of {} that divide every layer", cluster.devices,
          options.tp);
  require(options.shard == 0 || options.tp == 1,
          "--shard {} with --tp {}: only replicas of whole layers hold them in shards",
          options.shard, options.tp);
  std::vector<Estimate> ranked;
  for (const Layout& layout : layouts(training, cluster, options))
    ranked.push_back(estimate(training, cluster, layout));
  require(!ranked.empty(),
          "no dp x pp suits {} devices: pp may be at most {}{}, and the sequences of a step, {}, "
          "must be a multiple of dp{}",
          cluster.devices,
          training.model.tied_head || options.shard > 0 ? 1 : training.model.layers,
          options.shard > 0          ? " (shards)"
          : training.model.tied_head ? " (tied head)"
                                     : "",
          training.batch,
          options.microbatch > 0 ? fmt::format(" times {} a microbatch", options.microbatch) : "");
  std::ranges::stable_sort(ranked, {}, [](const Estimate& e) {
    return std::tuple(e.missing, -std::round(e.tokens_per_s), e.largest_memory());
  });
  return ranked;
}

std::string verdict(const std::vector<Estimate>& ranked) {
  const Estimate& best = ranked.front();
  if (!best.fits())
    return fmt::format(
        "Nothing fits. Closest is {}: {:.1f} GB of memory are missing. More devices, shorter "
        "sequences, fewer bytes a parameter or recomputed activations would help.",
        name_of(best), 1e-9 * best.missing);
  return fmt::format("Best: {}, {} tokens/s. {}{}.", name_of(best),
                     format_count(std::llround(best.tokens_per_s)), least_stages(ranked),
                     next_mesh(ranked));
}

}  // namespace lab
