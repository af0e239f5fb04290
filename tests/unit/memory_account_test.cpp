// MemoryAccount: exact bytes by kind, peaks, limits, and ranks that are threads of one process.
#include "common/tensor/memory_account.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

#include "common/comm/sim/simulation.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"
#include "tests/unit/error_of.h"
#include "tests/unit/tiny_training.h"

namespace lab::memory_account_test {
namespace {

using Account = std::shared_ptr<MemoryAccount>;

TEST(MemoryAccount, CountsFromAllocationToRelease) {
  const auto account = std::make_shared<MemoryAccount>();
  const Tensor before = Tensor::zeros({100});
  {
    const CountMemory count(account);
    const MemoryOf weights(MemoryKind::kWeights);
    Tensor a = Tensor::zeros({3, 5});
    const Tensor view = a.rows(0, 1);  // keeps all of it alive, and counts nothing
    EXPECT_EQ(account->bytes(), 60);
    a = {};
    EXPECT_EQ(account->bytes(), 60);
    {
      const MemoryOf gradients(MemoryKind::kGradients);
      const Tensor b = Tensor::zeros({7});
      EXPECT_EQ(account->bytes(MemoryKind::kGradients), 28);
      EXPECT_EQ(account->bytes(MemoryKind::kWeights), 60);
    }
    const Tensor c = Tensor::zeros({1});
    EXPECT_EQ(account->bytes(MemoryKind::kWeights), 64);
  }
  EXPECT_EQ(account->bytes(), 0);
  EXPECT_EQ(account->peak(), 88);
  EXPECT_EQ(account->peak(MemoryKind::kWeights), 64);
  EXPECT_EQ(account->peak(MemoryKind::kGradients), 28);
  EXPECT_EQ(account->at_peak()[0], 60);
  EXPECT_EQ(account->at_peak()[1], 28);
  const Tensor after = Tensor::zeros({100});
  EXPECT_EQ(account->bytes(), 0);
  account->reset_peaks();
  EXPECT_EQ(account->peak(), 0);
}

TEST(MemoryAccount, PeakWithoutActivations) {
  const auto account = std::make_shared<MemoryAccount>();
  const CountMemory count(account);
  {
    const MemoryOf kind(MemoryKind::kActivations);
    const Tensor activations = Tensor::zeros({100});
    const Tensor more = Tensor::zeros({100});
  }
  const Tensor scratch = Tensor::zeros({3});
  EXPECT_EQ(account->peak(), 800);
  EXPECT_EQ(account->peak_without_activations(), 12);
}

TEST(MemoryAccount, IsOfAThreadAndOutlivesIt) {
  const auto account = std::make_shared<MemoryAccount>();
  std::optional<Tensor> kept;
  std::thread other([&] {
    const CountMemory count(account);
    kept = Tensor::zeros({10});
  });
  const Tensor not_counted = Tensor::zeros({1000});
  other.join();
  EXPECT_EQ(account->bytes(), 40);
  kept.reset();
  EXPECT_EQ(account->bytes(), 0);
}

TEST(MemoryAccount, SimulatedRanksHaveTheirOwn) {
  std::vector<Account> accounts;
  for (int rank = 0; rank < 3; ++rank) accounts.push_back(std::make_shared<MemoryAccount>());
  const auto report = simulate({.ranks = 3}, [&](ProcessGroup& world) {
    const CountMemory count(accounts[static_cast<size_t>(world.rank())]);
    const Tensor all = Tensor::zeros({3 * (world.rank() + 1)});
    world.barrier();
    EXPECT_EQ(accounts[static_cast<size_t>(world.rank())]->bytes(), 12 * (world.rank() + 1));
  });
  EXPECT_TRUE(report.succeeded());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(accounts[static_cast<size_t>(rank)]->peak(), 12 * (rank + 1));
    EXPECT_EQ(accounts[static_cast<size_t>(rank)]->bytes(), 0);
  }
}

TEST(MemoryAccount, ALimitRefusesAndLosesNothing) {
  const auto account = std::make_shared<MemoryAccount>();
  account->set_limit(1000);
  const CountMemory count(account);
  const MemoryOf kind(MemoryKind::kGradients);
  const Tensor fits = Tensor::zeros({250});
  const std::string error = error_of([] {
    const MemoryOf optimizer(MemoryKind::kOptimizer);
    Tensor::zeros({1'000'000});
  });
  EXPECT_TRUE(contains(error, "4.0 MB more for optimizer")) << error;
  EXPECT_TRUE(contains(error, "in use: gradients 0.0 MB")) << error;
  EXPECT_EQ(account->bytes(), 1000);
  EXPECT_EQ(account->peak(), 1000);
  EXPECT_EQ(error_of([] { Tensor::zeros({1}); }).empty(), false);
}

TEST(MemoryAccount, AModelAndItsOptimizerByKind) {
  const auto account = std::make_shared<MemoryAccount>();
  const CountMemory count(account);
  LlamaStage model(tiny_config(), StageSpan::whole(tiny_config()), Device::kCpu, 1);
  const auto bytes = static_cast<int64_t>(model.parameters().bytes());
  Adam adam(model.parameters().numel(), {}, lab01::adam_update);
  EXPECT_EQ(account->bytes(MemoryKind::kWeights), bytes);
  EXPECT_EQ(account->bytes(MemoryKind::kGradients), bytes);
  EXPECT_EQ(account->bytes(MemoryKind::kOptimizer), 2 * bytes);
  tiny_step(model, adam, 1);
  EXPECT_GE(account->peak(MemoryKind::kActivations),
            static_cast<int64_t>(model.peak_activation_bytes()));
  const int64_t after_one = account->bytes();
  account->reset_peaks();
  tiny_step(model, adam, 2);
  EXPECT_EQ(account->bytes(), after_one) << "a step must not keep anything";
}

}  // namespace
}  // namespace lab::memory_account_test
