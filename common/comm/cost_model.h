// CostModel: what messages and additions cost in a simulation.
#pragma once

namespace lab {

/// The alpha-beta model (Hockney, "The communication challenge for MPP", 1994): a message of n
/// bytes takes alpha + beta * n.
struct LinkCost {
  double alpha = 0;  // s per message: the latency
  double beta = 0;   // s per byte: one over the bandwidth

  double seconds(double bytes) const { return alpha + beta * bytes; }
};

/// Every two ranks have a link in each direction. Each rank sends one message at a time and
/// receives one at a time, both at once if it can.
struct CostModel {
  LinkCost inside = {};    // between two ranks of one host
  LinkCost between = {};   // between ranks of different hosts
  int ranks_per_host = 0;  // ranks 0, 1 ... of the world share the first host; 0: all share one
  double gamma = 0;        // s per element that `combine` adds (common/comm/combine.h)

  /// `from`, `to`: ranks of the world.
  const LinkCost& link(int from, int to) const {
    const bool one_host = ranks_per_host == 0 || from / ranks_per_host == to / ranks_per_host;
    return one_host ? inside : between;
  }
};

}  // namespace lab
