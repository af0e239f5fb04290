// A whole training: resuming after Ctrl-C gives the very bits of a run that was never stopped.
#include "common/run/training/training_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>

#include "common/error.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/validation.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/unit/error_of.h"
#include "tests/unit/raw_files.h"
#include "tests/unit/temp_folder.h"

namespace lab::training_run_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNever = 1'000'000;

class TrainingRunTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream corpus(folder_.path() / "stories.txt");
    for (int i = 0; i < 60; ++i)
      corpus << "Tom saw " << i << " birds. He said hello to bird number " << i * 7 % 60
             << ". Then they all went home.\n<|endoftext|>\n";
  }

  RunPlan options_for(const char* name, std::vector<const char*> more = {}) const {
    const std::string out = (folder_.path() / name).string();
    const std::string data = (folder_.path() / "stories.txt").string();
    const std::string cache = (folder_.path() / "cache").string();
    std::vector<const char*> arguments = {"train",       "--out",      out.c_str(),
                                          "--data",      data.c_str(), "--cache",
                                          cache.c_str(), "--threads",  "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return settle_plan(static_cast<int>(arguments.size()), arguments.data(), {.about = ""});
  }

  RunPlan new_run(const char* name, std::vector<const char*> more = {}) const {
    more.insert(more.end(), {"--steps", "12", "--dim", "16", "--heads", "2", "--layers", "1",
                             "--context", "16", "--accumulate", "2", "--checkpoint-every", "4",
                             "--validate-every", "5", "--lr", "0.01"});
    return options_for(name, more);
  }

  // The loop of lab 01. At `interrupt_at` the user presses Ctrl-C; before the update of `break_at`
  // the weights become infinite.
  int train(const RunPlan& plan, int64_t interrupt_at = kNever, int64_t break_at = kNever) {
    const Tokenizer tokenizer(plan.tokenizer);
    const TokenDataset data(plan.data, tokenizer, plan.cache);
    Sampler sampler(data.sequence_count(Split::kTrain, plan.model.context), 1);
    LlamaConfig config = plan.model;
    config.vocab_size = tokenizer.vocab_size();
    LlamaStage model(config, StageSpan::whole(config), Device::kCpu, 1);
    const auto optimizer = make_optimizer(plan, model, lab01::adam_update);
    const auto validate = [&] { return validation_loss(model, data, plan, lab01::causal_lm_loss); };
    TrainingRun run(plan, {model, *optimizer, sampler, tokenizer, data, validate});
    for (int64_t step = run.begin(); run.goes_on(step); ++step) {
      if (step == break_at) model.parameters().fill(std::numeric_limits<float>::infinity());
      const double loss =
          lab01::train_step(model, *optimizer, run.next_microbatches(), lab01::causal_lm_loss,
                            plan.learning_rates().at(step), plan.clip);
      if (step == 2) fs::remove_all(folder_to_remove_);
      run.record(step, loss);
      if (step == interrupt_at) std::raise(SIGINT);
      if (run.checkpoint_due(step)) run.save_checkpoint();
    }
    run.finish();
    return run.exit_code();
  }

  std::string read(const fs::path& file) const { return read_all(folder_.path() / file); }

  TempFolder folder_;
  fs::path folder_to_remove_;
};

TEST_F(TrainingRunTest, ResumingGivesTheBitsOfAnUndisturbedRun) {
  EXPECT_EQ(train(new_run("whole")), 0);
  EXPECT_EQ(train(new_run("parts"), /*interrupt_at=*/6), 130);
  EXPECT_EQ(find_checkpoint(folder_.path() / "parts").filename(), "checkpoint-000006");
  EXPECT_EQ(train(options_for("parts", {"--resume"}), /*interrupt_at=*/7), 130);
  EXPECT_EQ(train(options_for("parts", {"--resume"})), 0);

  const auto whole = read_metrics(folder_.path() / "whole" / "metrics.jsonl");
  const auto parts = read_metrics(folder_.path() / "parts" / "metrics.jsonl");
  ASSERT_EQ(whole.size(), 12U);
  ASSERT_EQ(parts.size(), 12U);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(parts[i].step, whole[i].step);
    EXPECT_EQ(parts[i].loss, whole[i].loss) << "step " << whole[i].step;
    EXPECT_EQ(parts[i].val_loss, whole[i].val_loss) << "step " << whole[i].step;
    EXPECT_EQ(parts[i].learning_rate, whole[i].learning_rate);
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const fs::path path = fs::path("checkpoint-000012") / file;
    EXPECT_FALSE(read("whole" / path).empty());
    EXPECT_EQ(read("whole" / path), read("parts" / path)) << file;
  }
  EXPECT_LT(whole.back().loss, whole.front().loss) << "it should have learnt something";
}

TEST_F(TrainingRunTest, WritesWhatItPromises) {
  EXPECT_EQ(train(new_run("run")), 0);
  const auto records = read_metrics(folder_.path() / "run" / "metrics.jsonl");
  ASSERT_EQ(records.size(), 12U);
  for (const StepRecord& record : records) {
    const bool measured = record.step == 1 || record.step % 5 == 0 || record.step == 12;
    EXPECT_EQ(record.val_loss.has_value(), measured) << "step " << record.step;
  }
  EXPECT_NEAR(*records[0].val_loss, std::log(4096.0), 0.2) << "before any update";
  EXPECT_NE(read("run/loss.svg").find("</svg>"), std::string::npos);
  ASSERT_EQ(list_checkpoints(folder_.path() / "run").size(), 2U);
  EXPECT_EQ(read("run/checkpoint-000012/tokenizer.model"), read(default_plan().tokenizer));
  const LlamaStage model = load_model(folder_.path() / "run" / "checkpoint-000012");
  EXPECT_EQ(model.config().dim, 16);
}

TEST_F(TrainingRunTest, DivergenceIsReportedAndNothingIsOverwritten) {
  const auto error = error_of([&] { train(new_run("run"), kNever, /*break_at=*/7); });
  EXPECT_TRUE(contains(error, "step 7: training has diverged")) << error;
  EXPECT_TRUE(contains(error, "lower --lr")) << error;
  const auto checkpoints = list_checkpoints(folder_.path() / "run");
  ASSERT_EQ(checkpoints.size(), 1U);
  EXPECT_EQ(checkpoints[0].filename(), "checkpoint-000004");
  EXPECT_EQ(read_metrics(folder_.path() / "run" / "metrics.jsonl").size(), 6U);
  EXPECT_EQ(train(options_for("run", {"--resume"})), 0);
}

TEST_F(TrainingRunTest, AFolderThatIsRemovedEndsTheRun) {
  const RunPlan plan = new_run("run");
  folder_to_remove_ = plan.out;
  EXPECT_THROW(train(plan), Error);
  EXPECT_FALSE(fs::exists(plan.out));
}

TEST_F(TrainingRunTest, OtherDataIsRefusedOnResume) {
  EXPECT_EQ(train(new_run("run"), /*interrupt_at=*/2), 130);
  std::ofstream(folder_.path() / "stories.txt", std::ios::app) << "A new story.\n";
  const auto error = error_of([&] { train(options_for("run", {"--resume"})); });
  EXPECT_TRUE(contains(error, "another corpus")) << error;
}

TEST_F(TrainingRunTest, ARunThatWasKilledAfterItsLastCheckpointIsFinished) {
  EXPECT_EQ(train(new_run("run")), 0);
  fs::remove(folder_.path() / "run" / "loss.svg");
  EXPECT_EQ(train(options_for("run", {"--resume"})), 0);
  EXPECT_NE(read("run/loss.svg").find("</svg>"), std::string::npos);
  EXPECT_EQ(read_metrics(folder_.path() / "run" / "metrics.jsonl").size(), 12U);
  EXPECT_THROW(train(options_for("run", {"--resume", "--steps", "11"})), Error);
  EXPECT_EQ(train(options_for("run", {"--resume", "--steps", "13"})), 0);
  EXPECT_EQ(read_metrics(folder_.path() / "run" / "metrics.jsonl").size(), 13U);
}

TEST_F(TrainingRunTest, ARunThatWasKilledBeforeItsFirstCheckpointStartsAgain) {
  EXPECT_EQ(train(new_run("whole")), 0);
  EXPECT_EQ(train(new_run("killed"), /*interrupt_at=*/2), 130);
  fs::remove_all(folder_.path() / "killed" / "checkpoint-000002");
  EXPECT_EQ(train(options_for("killed", {"--resume"})), 0);
  const fs::path weights = "checkpoint-000012/model.safetensors";
  EXPECT_EQ(read("killed" / weights), read("whole" / weights));
  EXPECT_EQ(read_metrics(folder_.path() / "killed" / "metrics.jsonl").size(), 12U);
}

TEST_F(TrainingRunTest, ARunWithoutAStepLeavesNothing) {
  const RunPlan plan = new_run("run");
  const Tokenizer tokenizer(plan.tokenizer);
  const TokenDataset data(plan.data, tokenizer, plan.cache);
  Sampler sampler(1, 1);
  LlamaConfig config = plan.model;
  config.vocab_size = tokenizer.vocab_size();
  LlamaStage model(config, StageSpan::whole(config), Device::kCpu, 1);
  Sgd sgd;
  {
    const TrainingRun run(plan,
                          {model, sgd, sampler, tokenizer, data, [] { return std::nullopt; }});
    EXPECT_TRUE(fs::exists(plan.out));
  }
  EXPECT_FALSE(fs::exists(plan.out));
}

}  // namespace
}  // namespace lab::training_run_test
