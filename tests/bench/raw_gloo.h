// Gloo's own all-reduce, without ProcessGroup.
#pragma once

#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/gloo/gloo_store.h"
#include "common/run/launch/job.h"

namespace lab::bench {

/// Gloo as its own examples use it.
class RawGloo {
 public:
  explicit RawGloo(Job& job) {
    const RankEnvironment& self = job.environment();
    gloo::transport::tcp::attr attributes;
    attributes.hostname = self.bind_addr;
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    context_ = std::make_shared<gloo::rendezvous::Context>(self.rank, self.world_size);
    context_->setTimeout(self.timeout);
    const auto store = std::make_shared<GlooStore>(job.store(), "raw/", self.timeout);
    connect(*context_, store);
  }

  void all_reduce(std::vector<float>& data) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data.data(), data.size());
    options.setTag(++calls_);
    options.setReduceFunction([](void* result, const void* a, const void* b, size_t count) {
      const auto* x = static_cast<const float*>(a);
      const auto* y = static_cast<const float*>(b);
      auto* sum = static_cast<float*>(result);
      for (size_t i = 0; i < count; ++i) sum[i] = x[i] + y[i];
    });
    gloo::allreduce(options);
  }

 private:
  // Newer versions of Gloo take the store as a shared pointer.
  template <typename SomeContext>
  void connect(SomeContext& context, std::shared_ptr<gloo::rendezvous::Store> store) {
    if constexpr (requires { context.connectFullMesh(store, device_); })
      context.connectFullMesh(store, device_);
    else
      context.connectFullMesh(*store, device_);
  }

  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  uint32_t calls_ = 0;
};

}  // namespace lab::bench
