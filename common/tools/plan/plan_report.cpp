#include "common/tools/plan/plan_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/format.h"
#include "common/tools/plan/search.h"

namespace lab {
namespace {

using Json = nlohmann::ordered_json;

const char* order_name(PassOrder order) { return order == PassOrder::kGpipe ? "gpipe" : "1f1b"; }

/// "2,2,2", or for many stages "1 to 2".
std::string layers_text(const std::vector<int64_t>& layers) {
  if (layers.size() <= 6) return fmt::format("{}", fmt::join(layers, ","));
  const auto [least, most] = std::ranges::minmax(layers);
  return least == most ? fmt::format("{} each", least) : fmt::format("{} to {}", least, most);
}

/// "12.3 GB", "45 MB".
std::string bytes_text(double bytes) {
  return bytes >= 1e9 ? fmt::format("{:.1f} GB", 1e-9 * bytes)
                      : fmt::format("{:.1f} MB", 1e-6 * bytes);
}

std::string fits_text(const Estimate& e) {
  return e.fits() ? "fits" : fmt::format("no: {} too much", bytes_text(e.missing));
}

Json link_json(const Link& link) {
  return {{"bytes_per_s", link.bandwidth}, {"latency_s", link.latency}};
}

Json layout_json(const Layout& layout) {
  return {{"dp", layout.dp},
          {"pp", layout.pp},
          {"tp", layout.tp},
          {"shard", layout.shard},
          {"m", layout.m}};
}

Json estimate_json(const Estimate& e) {
  Json json = layout_json(e.layout);
  json.update(Json{{"microbatch", e.microbatch},
                   {"layers", e.layers},
                   {"fits", e.fits()},
                   {"memory_bytes", e.memory},
                   {"missing_bytes", e.missing},
                   {"step_s", e.step},
                   {"tokens_per_s", e.tokens_per_s},
                   {"compute", e.compute},
                   {"bubble", e.bubble},
                   {"communication", e.communication},
                   {"update", e.update}});
  return json;
}

Json training_json(const Training& t) {
  return {{"parameters", parameter_count(t.model)},
          {"length", t.length},
          {"batch", t.batch},
          {"precision", t.precision.name},
          {"bytes_per_parameter", t.precision.parameter},
          {"schedule", order_name(t.order)},
          {"recompute", t.recompute}};
}

Json cluster_json(const Cluster& c) {
  return {{"device", c.device.name},
          {"flops", c.device.flops},
          {"memory_bytes", c.device.memory},
          {"memory_bytes_per_s", c.device.memory_bandwidth},
          {"devices", c.devices},
          {"per_host", std::min(c.per_host, c.devices)},
          {"shared_cores", c.cores},
          {"inside", link_json(c.inside)},
          {"between", link_json(c.between)}};
}

}  // namespace

std::string plan_header(const Training& training, const Cluster& cluster) {
  const DeviceSpec& device = cluster.device;
  std::string text = fmt::format(
      "model    {} parameters, {} layers; a step has {} sequences of {} tokens; {}, {:g} bytes a "
      "parameter, {}{}\n",
      format_count(parameter_count(training.model)), training.model.layers,
      format_count(training.batch), format_count(training.length), training.precision.name,
      training.precision.parameter, order_name(training.order),
      training.recompute ? ", activations recomputed" : "");
  if (cluster.cores > 0)
    text += fmt::format(
        "devices  {} {} on {} cores of {:.0f} GFLOP/s; together {} and {:.1f} GB/s of memory; "
        "messages {:.2f} GB/s, {:.0f} us\n",
        format_count(cluster.devices), cluster.devices == 1 ? "rank" : "ranks", cluster.cores,
        1e-9 * device.flops, bytes_text(device.memory), 1e-9 * device.memory_bandwidth,
        1e-9 * cluster.inside.bandwidth, 1e6 * cluster.inside.latency);
  else
    text += fmt::format(
        "devices  {} x {}, {} a host: {:.4g} TFLOP/s, {}, {:.4g} GB/s of memory; messages in a "
        "host {:.4g} GB/s, {:.0f} us; between hosts {:.4g} GB/s, {:.0f} us\n",
        format_count(cluster.devices), device.name, std::min(cluster.per_host, cluster.devices),
        1e-12 * device.flops, bytes_text(device.memory), 1e-9 * device.memory_bandwidth,
        1e-9 * cluster.inside.bandwidth, 1e6 * cluster.inside.latency,
        1e-9 * cluster.between.bandwidth, 1e6 * cluster.between.latency);
  return text;
}

std::string plan_table(const std::vector<Estimate>& ranked, int rows) {
  std::string text = fmt::format(
      "{:>5} {:>4} {:>5} {:>6}  {:<13} {:>9} {:>7} {:>7} {:>7} {:>12}  {}\n", "dp", "pp", "m",
      "seqs", "layers", "memory", "bubble", "comm.", "update", "tokens/s", "memory?");
  const size_t shown =
      rows > 0 ? std::min(ranked.size(), static_cast<size_t>(rows)) : ranked.size();
  for (const Estimate& e : std::span(ranked).first(shown))
    text += fmt::format(
        "{:>5} {:>4} {:>5} {:>6}  {:<13} {:>9} {:>5.1f} % {:>5.1f} % {:>5.1f} % {:>12}  {}\n",
        e.layout.dp, e.layout.pp, e.layout.m, e.microbatch, layers_text(e.layers),
        bytes_text(e.largest_memory()), 100 * e.bubble, 100 * e.communication, 100 * e.update,
        format_count(std::llround(e.tokens_per_s)), fits_text(e));
  if (shown < ranked.size())
    text += fmt::format("... and {} more (--rows 0 shows all)\n", ranked.size() - shown);
  return text +
         "seqs: sequences per microbatch. layers: of each stage, divided for large m. memory: of "
         "the fullest rank. bubble, comm., update: fractions of the step.\n";
}

std::string plan_json(const Training& training, const Cluster& cluster,
                      const std::vector<Estimate>& ranked) {
  Json estimates = Json::array();
  for (const Estimate& e : ranked) estimates.push_back(estimate_json(e));
  const bool any_fits = !ranked.empty() && ranked.front().fits();
  const Json best = any_fits ? layout_json(ranked.front().layout) : Json();
  const Json json = {{"training", training_json(training)},
                     {"cluster", cluster_json(cluster)},
                     {"estimates", estimates},
                     {"best", best},
                     {"verdict", verdict(ranked)}};
  return json.dump(2) + "\n";
}

}  // namespace lab
