// LlamaStage on a GPU against the same stage on the CPU: passes, updates, stages, stories.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/comm/sim/simulation.h"
#include "common/error.h"
#include "common/io/safetensors.h"
#include "common/model/llama_stage.h"
#include "common/optim/clip.h"
#include "common/optim/optimizer.h"
#include "common/run/training/training_functions.h"
#include "tests/gpu/cuda_test.h"
#include "tests/gpu/tiny_stage.h"

namespace lab {
namespace {

using test::CudaTest;
using test::expect_near;
using test::learn;
using test::random_batch;
using test::tiny;
using test::to_doubles;
using test::whole;

constexpr double kTolerance = 1e-4;  // of the largest number of a tensor

void expect_equal(const LlamaStage& on_gpu, const LlamaStage& on_cpu, const std::string& what) {
  for (size_t i = 0; i < on_cpu.named_parameters().size(); ++i) {
    const Parameter& expected = on_cpu.named_parameters()[i];
    const Parameter& actual = on_gpu.named_parameters()[i];
    expect_near(actual.value.to(Device::kCpu), to_doubles(expected.value), kTolerance,
                what + ", " + expected.name);
    expect_near(actual.gradient.to(Device::kCpu), to_doubles(expected.gradient), kTolerance,
                what + ", gradient of " + expected.name);
  }
}

class LlamaStageOnGpu : public CudaTest {};

TEST_F(LlamaStageOnGpu, StartsFromTheSameWeights) {
  const Tensor on_gpu = whole(Device::kCuda).parameters().to(Device::kCpu);
  EXPECT_EQ(test::different_bits(on_gpu, whole(Device::kCpu).parameters()), 0U);
}

// The first pass is launched kernel by kernel, the second is recorded, the third repeats it.
TEST_F(LlamaStageOnGpu, LossAndGradientsAreTheCpus) {
  LlamaStage on_gpu = whole(Device::kCuda);
  LlamaStage on_cpu = whole(Device::kCpu);
  for (uint64_t pass = 1; pass <= 4; ++pass) {
    const TokenBatch batch = random_batch(pass);
    on_gpu.zero_gradients();
    on_cpu.zero_gradients();
    EXPECT_NEAR(learn(on_gpu, batch), learn(on_cpu, batch), 1e-5) << "pass " << pass;
    expect_equal(on_gpu, on_cpu, "pass " + std::to_string(pass));
  }
}

// If a library refuses to record, training goes on without, and slower; here none should refuse.
TEST_F(LlamaStageOnGpu, ItsPassesAreRecorded) {
  LlamaStage model = whole(Device::kCuda);
  testing::internal::CaptureStderr();
  for (uint64_t pass = 1; pass <= 3; ++pass) learn(model, random_batch(pass));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(LlamaStageOnGpu, SeveralMicrobatchesInFlight) {
  LlamaStage on_gpu = whole(Device::kCuda);
  LlamaStage on_cpu = whole(Device::kCpu);
  for (LlamaStage* model : {&on_gpu, &on_cpu})
    for (int round = 0; round < 3; ++round) {
      std::vector<Tensor> logits;
      for (int m = 0; m < 3; ++m)
        logits.push_back(model->forward(random_batch(static_cast<uint64_t>(m)), m));
      for (int m : {1, 0, 2}) {
        const TokenBatch batch = random_batch(static_cast<uint64_t>(m));
        const auto at = static_cast<size_t>(m);
        training_functions(model->device()).loss(logits[at], batch, 120);
        model->backward(logits[at], m);
      }
    }
  expect_equal(on_gpu, on_cpu, "after three rounds");
}

TEST_F(LlamaStageOnGpu, OtherShapesInBetween) {
  LlamaStage on_gpu = whole(Device::kCuda);
  LlamaStage on_cpu = whole(Device::kCpu);
  for (int64_t length : {19, 19, 7, 19, 7, 7, 19, 19})
    for (LlamaStage* model : {&on_gpu, &on_cpu})
      learn(*model, random_batch(3, length == 7 ? 1 : 2, length));
  expect_equal(on_gpu, on_cpu, "lengths 19 and 7");
}

TEST_F(LlamaStageOnGpu, EveryRunHasTheSameBits) {
  std::vector<Tensor> gradients;
  for (int run = 0; run < 2; ++run) {
    LlamaStage model = whole(Device::kCuda);
    for (uint64_t pass = 0; pass < 3; ++pass) learn(model, random_batch(pass));
    gradients.push_back(model.gradients().to(Device::kCpu));
  }
  EXPECT_EQ(test::different_bits(gradients[0], gradients[1]), 0U);
}

TEST_F(LlamaStageOnGpu, TiedHead) {
  LlamaConfig config = tiny();
  config.tied_head = true;
  LlamaStage on_gpu = whole(Device::kCuda, config);
  LlamaStage on_cpu = whole(Device::kCpu, config);
  for (LlamaStage* model : {&on_gpu, &on_cpu})
    for (uint64_t pass = 0; pass < 3; ++pass) learn(*model, random_batch(pass));
  expect_equal(on_gpu, on_cpu, "tied head");
}

TEST_F(LlamaStageOnGpu, UpdatesFollowTheCpus) {
  struct Kind {
    const char* name;
    bool adam;
    float weight_decay;
  };
  for (const Kind& kind :
       {Kind{"SGD", false, 0.0F}, Kind{"Adam", true, 0.0F}, Kind{"AdamW", true, 0.1F}}) {
    LlamaStage on_gpu = whole(Device::kCuda);
    LlamaStage on_cpu = whole(Device::kCpu);
    for (LlamaStage* model : {&on_gpu, &on_cpu}) {
      const auto functions = training_functions(model->device());
      Sgd sgd;
      // A larger epsilon than usual: where a gradient is nearly 0, Adam makes much of its rounding.
      Adam adam(model->parameters().numel(), {.epsilon = 1e-2F}, functions.adam, kind.weight_decay,
                model->device());
      Optimizer& optimizer = kind.adam ? static_cast<Optimizer&>(adam) : sgd;
      for (uint64_t step = 1; step <= 4; ++step) {
        model->zero_gradients();
        learn(*model, random_batch(step));
        clip_gradients(*model, 0.05);
        optimizer.step(model->parameters(), model->gradients(), 0.01F);
      }
    }
    expect_equal(on_gpu, on_cpu, kind.name);
  }
}

// As a student writes it: tensors for what arrives lie on the CPU, or on the GPU.
TEST_F(LlamaStageOnGpu, StagesExchangeTensorsThroughTheHost) {
  LlamaStage model = whole(Device::kCpu);
  for (uint64_t pass = 0; pass < 3; ++pass) learn(model, random_batch(pass));
  for (const Device room : {Device::kCpu, Device::kCuda}) {
    std::vector<Tensor> gradients(2);
    const auto report = simulate({.ranks = 2}, [&](ProcessGroup& world) {
      const bool first = world.rank() == 0;
      const StageSpan span = first ? StageSpan{.first_layer = 0, .last_layer = 1, .embeds = true}
                                   : StageSpan{.first_layer = 1, .last_layer = 3, .has_head = true};
      LlamaStage stage(tiny(), span, Device::kCuda, 7);
      const Tensor hidden = Tensor::empty({2, 19, 24}, room);
      for (uint64_t pass = 0; pass < 3; ++pass) {
        const TokenBatch batch = random_batch(pass);
        if (first) {
          world.send(stage.forward(batch), 1);
          world.recv(hidden, 1);
          stage.backward(hidden);
        } else {
          world.recv(hidden, 0);
          const Tensor logits = stage.forward(hidden);
          training_functions(Device::kCuda).loss(logits, batch, 40);
          world.send(stage.backward(logits), 0);
        }
      }
      gradients[static_cast<size_t>(world.rank())] =
          stage.named_parameters()[0].gradient.to(Device::kCpu);
    });
    EXPECT_TRUE(report.succeeded()) << report.errors[0] << report.errors[1];
    expect_near(gradients[0], to_doubles(model.named_parameters()[0].gradient), kTolerance,
                "embedding");
    for (const Parameter& p : model.named_parameters()) {
      if (p.name == "model.layers.1.input_layernorm.weight")
        expect_near(gradients[1], to_doubles(p.gradient), kTolerance, p.name);
    }
  }
}

TEST_F(LlamaStageOnGpu, CollectivesCombineGpuTensors) {
  const auto report = simulate({.ranks = 3}, [](ProcessGroup& world) {
    const auto own = static_cast<float>(world.rank() + 1);
    const Tensor sum = Tensor::from({own, 10 * own}, {2}).to(Device::kCuda);
    world.all_reduce(sum);
    const Tensor all = Tensor::empty({3, 2}, Device::kCuda);
    world.all_gather(all, Tensor::from({own, -own}, {2}).to(Device::kCuda));
    const Tensor root = Tensor::from({own}, {1}).to(Device::kCuda);
    world.broadcast(root, 2);
    require(to_doubles(sum.to(Device::kCpu)) == std::vector<double>{6, 60}, "all_reduce");
    require(to_doubles(all.to(Device::kCpu)) == std::vector<double>{1, -1, 2, -2, 3, -3},
            "all_gather");
    require(to_doubles(root.to(Device::kCpu)) == std::vector<double>{3}, "broadcast");
  });
  for (const std::string& error : report.errors) EXPECT_EQ(error, "");
}

TEST_F(LlamaStageOnGpu, TellsTheSameStory) {
  const LlamaStage on_gpu = whole(Device::kCuda);
  const LlamaStage on_cpu = whole(Device::kCpu);
  const auto gpu_cache = on_gpu.new_cache();
  const auto cpu_cache = on_cpu.new_cache();
  for (const std::vector<int32_t>& tokens :
       {std::vector<int32_t>{3, 1, 4, 1, 5}, std::vector<int32_t>{9}, std::vector<int32_t>{2, 6}}) {
    const Tensor logits = on_gpu.decode(tokens, *gpu_cache);
    expect_near(logits.to(Device::kCpu), to_doubles(on_cpu.decode(tokens, *cpu_cache)), kTolerance,
                "logits");
  }
}

TEST_F(LlamaStageOnGpu, WeightsGoThroughFiles) {
  const LlamaStage model = whole(Device::kCuda);
  const auto path = std::filesystem::path(testing::TempDir()) / "gpu.safetensors";
  write_safetensors(path, std::vector<NamedTensor>{{"all", model.parameters()}}, {});
  const LlamaStage other(tiny(), StageSpan::whole(tiny()), Device::kCuda, 8);
  SafetensorsFile(path).copy_to("all", other.parameters());
  EXPECT_EQ(test::different_bits(model.parameters().to(Device::kCpu),
                                 other.parameters().to(Device::kCpu)),
            0U);
}

TEST_F(LlamaStageOnGpu, RefusesWhatItCannotDo) {
  LlamaStage model = whole(Device::kCuda);
  TokenBatch batch = random_batch(1);
  batch.tokens[3] = 37;
  EXPECT_THROW(model.forward(batch), Error);
  EXPECT_THROW(static_cast<void>(model.parameters().values()), Error);
}

}  // namespace
}  // namespace lab
