// The command line: defaults, derived values, contradictions, and what --resume takes over.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/checkpoint/training_state.h"
#include "common/run/options/choose_device.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/settle_plan.h"
#include "tests/unit/error_of.h"
#include "tests/unit/parsed_plan.h"
#include "tests/unit/temp_folder.h"

namespace lab::run_plan_test {
namespace {

TEST(Options, DefaultsAreTheModelOfTheWorkbook) {
  const RunPlan options = parse({});
  EXPECT_EQ(options.model, LlamaConfig{});
  EXPECT_EQ(options.batch, 3);
  EXPECT_EQ(options.accumulate, 1);
  EXPECT_EQ(options.learning_rate, 8e-4);
  EXPECT_EQ(options.decay, Decay::kCosine);
  EXPECT_EQ(options.optimizer, OptimizerKind::kAdam);
  EXPECT_EQ(options.warmup, options.steps / 16);
  EXPECT_TRUE(options.data.is_absolute());
  EXPECT_EQ(options.data.filename(), "stories.txt");
  EXPECT_EQ(options.tokenizer.filename(), "tokenizer.model");
}

TEST(Options, AProgramHasDefaultsOfItsOwn) {
  const ProgramInfo info{.about = "test",
                         .learning_rate = 2e-3,
                         .warmup_share = 3,
                         .embedding_scale = 10,
                         .validation_batches = 48};
  const auto parse_own = [&](std::vector<const char*> arguments) {
    return settle_plan(static_cast<int>(arguments.size()), arguments.data(), info);
  };
  const RunPlan own = parse_own({"train", "--steps", "90"});
  EXPECT_EQ(own.learning_rate, 2e-3);
  EXPECT_EQ(own.warmup, 30);
  EXPECT_EQ(own.validation_batches, 48);
  EXPECT_EQ(own.model.embedding_scale, 10.0F);
  EXPECT_EQ(plan_from_json(plan_to_json(own)).model, own.model);
  const RunPlan given = parse_own(
      {"train", "--steps", "90", "--lr", "0.1", "--warmup", "4", "--embedding-scale", "2.5"});
  EXPECT_EQ(given.learning_rate, 0.1);
  EXPECT_EQ(given.warmup, 4);
  EXPECT_EQ(given.model.embedding_scale, 2.5F);
  const RunPlan tied = parse_own({"train", "--tied"});
  EXPECT_EQ(tied.model.embedding_scale, 1.0F);
  const TempFolder folder;
  const std::string file = folder.path() / "config.ini";
  std::ofstream(file) << tied.config_file;
  EXPECT_EQ(parse_own({"train", "--config", file.c_str()}).model, tied.model);
  EXPECT_THROW(parse_own({"train", "--tied", "--embedding-scale", "2"}), UsageError);
}

TEST(Options, EveryOptionArrives) {
  const RunPlan options = parse({"--steps",
                                 "10",
                                 "--seed",
                                 "7",
                                 "--threads",
                                 "2",
                                 "--batch",
                                 "4",
                                 "--accumulate",
                                 "5",
                                 "--lr",
                                 "0.01",
                                 "--warmup",
                                 "3",
                                 "--decay",
                                 "constant",
                                 "--optimizer",
                                 "adamw",
                                 "--clip",
                                 "0",
                                 "--weight-decay",
                                 "0.2",
                                 "--checkpoint-every",
                                 "11",
                                 "--validate-every",
                                 "12",
                                 "--validation-batches",
                                 "13",
                                 "--prompt",
                                 "Tom",
                                 "--dim",
                                 "64",
                                 "--heads",
                                 "4",
                                 "--kv-heads",
                                 "2",
                                 "--layers",
                                 "3",
                                 "--hidden",
                                 "100",
                                 "--context",
                                 "32",
                                 "--tied",
                                 "--data",
                                 "d.txt",
                                 "--tokenizer",
                                 "t.model",
                                 "--cache",
                                 "c",
                                 "--story-tokens",
                                 "9"});
  EXPECT_EQ(options.steps, 10);
  EXPECT_EQ(options.seed, 7);
  EXPECT_EQ(options.threads, 2);
  EXPECT_EQ(options.batch, 4);
  EXPECT_EQ(options.accumulate, 5);
  EXPECT_EQ(options.learning_rate, 0.01);
  EXPECT_EQ(options.warmup, 3);
  EXPECT_EQ(options.decay, Decay::kConstant);
  EXPECT_EQ(options.optimizer, OptimizerKind::kAdamW);
  EXPECT_EQ(options.clip, 0.0);
  EXPECT_EQ(options.weight_decay, 0.2);
  EXPECT_EQ(options.checkpoint_every, 11);
  EXPECT_EQ(options.validate_every, 12);
  EXPECT_EQ(options.validation_batches, 13);
  EXPECT_EQ(options.prompt, "Tom");
  EXPECT_EQ(options.story_tokens, 9);
  EXPECT_EQ(options.data, std::filesystem::absolute("d.txt"));
  EXPECT_EQ(options.tokenizer, std::filesystem::absolute("t.model"));
  EXPECT_EQ(options.cache, std::filesystem::absolute("c"));
  EXPECT_EQ(options.model, (LlamaConfig{.dim = 64,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .layers = 3,
                                        .hidden_dim = 100,
                                        .context = 32,
                                        .tied_head = true}));
  // What a checkpoint stores says the same.
  EXPECT_EQ(plan_to_json(plan_from_json(plan_to_json(options))), plan_to_json(options));
  EXPECT_EQ(plan_from_json(plan_to_json(options)).model, options.model);
}

TEST(Options, SomeValuesFollowFromOthers) {
  const RunPlan options = parse({"--dim", "64", "--heads", "4", "--optimizer", "adamw"});
  EXPECT_EQ(options.model.kv_heads, 4);
  EXPECT_EQ(options.model.hidden_dim, 256);
  EXPECT_EQ(options.weight_decay, 0.01);
}

TEST(Options, LearningRatesFollowTheOptions) {
  const LearningRate rates =
      parse({"--steps", "100", "--lr", "0.5", "--warmup", "10"}).learning_rates();
  EXPECT_EQ(rates.peak, 0.5F);
  EXPECT_EQ(rates.warmup_steps, 10);
  EXPECT_EQ(rates.total_steps, 100);
  EXPECT_EQ(rates.decay, Decay::kCosine);
}

struct Wrong {
  const char* name;
  std::vector<const char*> arguments;
  const char* message;
};

class WrongOptions : public testing::TestWithParam<Wrong> {};

TEST_P(WrongOptions, AreRefusedInOneLine) {
  const std::string error = error_of(GetParam().arguments);
  EXPECT_NE(error.find(GetParam().message), std::string::npos) << "it says: " << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Options, WrongOptions,
    testing::Values(
        Wrong{"unknown", {"--stepz", "3"}, "--stepz"}, Wrong{"word", {"story.txt"}, "story.txt"},
        Wrong{"value_missing", {"--steps"}, "--steps"},
        Wrong{"not_a_number", {"--steps", "many"}, "--steps"},
        Wrong{"beyond_64_bits", {"--steps", "99999999999999999999"}, "--steps"},
        Wrong{"steps_0", {"--steps", "0"}, "--steps 0"},
        Wrong{"steps_negative", {"--steps", "-5"}, "--steps -5"},
        Wrong{"seed_negative", {"--seed", "-1"}, "--seed -1"},
        Wrong{"batch_0", {"--batch", "0"}, "--batch 0"},
        Wrong{"accumulate_0", {"--accumulate", "0"}, "--accumulate 0"},
        Wrong{"threads", {"--threads", "-1"}, "--threads -1"},
        Wrong{"lr_0", {"--lr", "0"}, "--lr 0"}, Wrong{"lr_nan", {"--lr", "nan"}, "--lr nan"},
        Wrong{"clip_negative", {"--clip", "-1"}, "--clip -1"},
        Wrong{"warmup_too_long", {"--steps", "10", "--warmup", "11"}, "--warmup 11"},
        Wrong{"schedule", {"--decay", "linear"}, "--decay"},
        Wrong{"optimizer", {"--optimizer", "lion"}, "--optimizer"},
        Wrong{"decay_with_adam", {"--weight-decay", "0.1"}, "adamw"},
        Wrong{"decay_with_sgd", {"--optimizer", "sgd", "--weight-decay", "0.1"}, "adamw"},
        Wrong{"heads", {"--heads", "5"}, "5 heads do not divide dim 288"},
        Wrong{"kv_heads", {"--kv-heads", "4"}, "4 kv_heads do not divide 6 heads"},
        Wrong{"layers_0", {"--layers", "0"}, "layers is 0"},
        Wrong{"context_1", {"--context", "1"}, "--context 1"},
        Wrong{"resume_what", {"--resume"}, "--resume needs --out"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Options, HelpIsGrouped) {
  try {
    parse({"--help"});
    FAIL() << "no help";
  } catch (const HelpRequested& help) {
    const std::string text = help.what();
    for (const char* part : {"A test.", "Run:", "Data:", "Optimization:", "Model:", "--resume"})
      EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

class RunFolderTest : public testing::Test {
 protected:
  // Parses with --out and returns the message of the Error, "" if there is none.
  std::string error_with_out(std::vector<const char*> more = {}) {
    more.insert(more.end(), {"--out", out_.c_str()});
    return lab::error_of([&] { parse(more); });
  }

  // A checkpoint that has nothing but the state of training.
  void make_checkpoint(const RunPlan& options) {
    UnfinishedCheckpoint checkpoint(out_, 5);
    save_training_state(checkpoint.folder(), {.step = 5, .plan = options});
    checkpoint.publish();
  }

  TempFolder folder_;
  std::filesystem::path out_ = folder_.path() / "run";
};

TEST_F(RunFolderTest, AFolderInUseIsRefused) {
  EXPECT_EQ(error_with_out(), "");
  std::filesystem::create_directory(out_);
  EXPECT_EQ(error_with_out(), "") << "an empty folder is free";
  std::ofstream(out_ / "thesis.txt") << "mine";
  EXPECT_NE(error_with_out().find("not empty"), std::string::npos);
  EXPECT_NE(error_with_out({"--resume"}).find("there is no checkpoint"), std::string::npos);
  out_ = out_ / "thesis.txt";
  EXPECT_NE(error_with_out().find("not a folder"), std::string::npos);
}

TEST_F(RunFolderTest, ARunThatEndedBeforeItRecordedAStepIsReplaced) {
  std::filesystem::create_directory(out_);
  std::ofstream(options_file(out_)) << "steps=5\n";
  EXPECT_NE(error_with_out(), "") << "perhaps somebody's own file";
  std::ofstream(out_ / "metrics.jsonl") << "";
  EXPECT_EQ(error_with_out(), "");
  EXPECT_EQ(make_run_folder(out_, {}, ""), out_);
  std::ofstream(out_ / "thesis.txt") << "mine";
  EXPECT_NE(error_with_out(), "");
  std::filesystem::remove(out_ / "thesis.txt");
  std::ofstream(out_ / "metrics.jsonl") << "{\"step\":1}\n";
  EXPECT_NE(error_with_out().find("ended without a checkpoint; add --resume"), std::string::npos);
  make_checkpoint(parse({}));
  EXPECT_NE(error_with_out().find("not empty"), std::string::npos);
}

TEST_F(RunFolderTest, RunsAreNumbered) {
  EXPECT_EQ(make_run_folder({}, out_, "train"), out_ / "001-train");
  EXPECT_EQ(make_run_folder({}, out_, "lab02"), out_ / "002-lab02");
  std::filesystem::create_directory(out_ / "041-old");
  EXPECT_EQ(make_run_folder({}, out_, "train"), out_ / "042-train");
  std::ofstream(out_ / "file") << "";
  EXPECT_THROW(make_run_folder(out_ / "file" / "below", {}, ""), Error);
}

TEST_F(RunFolderTest, ResumeTakesOverWhatIsNotGiven) {
  make_checkpoint(parse({"--steps", "40", "--dim", "64", "--heads", "4", "--lr", "0.25"}));
  const RunPlan options = parse({"--resume", "--out", out_.c_str(), "--threads", "1"});
  EXPECT_EQ(options.steps, 40);
  EXPECT_EQ(options.model.dim, 64);
  EXPECT_EQ(options.model.hidden_dim, 256);
  EXPECT_EQ(options.learning_rate, 0.25);
  EXPECT_EQ(options.warmup, 2);
  EXPECT_EQ(options.threads, 1);
  EXPECT_TRUE(options.resume);
  EXPECT_EQ(parse({"--resume", "--out", out_.c_str(), "--steps", "80"}).steps, 80);
  EXPECT_EQ(parse({"--resume", "--out", out_.c_str(), "--lr", "0.25"}).learning_rate, 0.25);
}

TEST_F(RunFolderTest, ResumeRefusesAContradiction) {
  make_checkpoint(parse({"--dim", "64", "--heads", "4"}));
  const std::string error = error_with_out({"--resume", "--dim", "128"});
  EXPECT_NE(error.find("--dim 128 contradicts the run"), std::string::npos) << error;
  EXPECT_NE(error.find("has 64"), std::string::npos) << error;
  for (const auto& more : std::vector<std::vector<const char*>>{{"--resume", "--seed", "2"},
                                                                {"--resume", "--batch", "1"},
                                                                {"--resume", "--decay", "constant"},
                                                                {"--resume", "--optimizer", "sgd"},
                                                                {"--resume", "--tied"},
                                                                {"--resume", "--context", "64"}})
    EXPECT_NE(error_with_out(more).find("contradicts the run"), std::string::npos) << more[1];
}

TEST_F(RunFolderTest, ResumeStaysOnTheDeviceUnlessToldOtherwise) {
  make_checkpoint(parse({"--device", "cuda", "--precision", "bfloat16", "--comm", "nccl"}));
  const RunPlan same = parse({"--resume", "--out", out_.c_str()});
  EXPECT_EQ(same.device, "cuda");
  EXPECT_EQ(same.precision, "bfloat16");
  EXPECT_EQ(same.comm, "nccl");
  const RunPlan moved =
      parse({"--resume", "--out", out_.c_str(), "--device", "cpu", "--precision", "float32"});
  EXPECT_EQ(moved.device, "cpu");
  EXPECT_EQ(moved.precision, "float32");
  EXPECT_EQ(lab::error_of([] { choose_device("cpu", "tf32"); }),
            "the CPU has no tf32: use --precision float32");
}

TEST_F(RunFolderTest, AResumedSplitIsForAsManyStages) {
  const auto parse_split = [&](std::vector<const char*> arguments, const char* stages) {
    arguments.insert(arguments.begin(), {"train", "--out", out_.c_str(), "--ranks", stages});
    return settle_plan(static_cast<int>(arguments.size()), arguments.data(),
                       {.about = "test", .division = Division::kStages, .log_every = 10});
  };
  make_checkpoint(parse_split({"--split", "4,1,1", "--log-every", "3"}, "3"));
  const RunPlan same = parse_split({"--resume"}, "3");
  EXPECT_EQ(same.split, "4,1,1");
  EXPECT_EQ(same.log_every, 3);
  const RunPlan fewer = parse_split({"--resume", "--log-every", "4"}, "2");
  EXPECT_EQ(fewer.split, "");
  EXPECT_EQ(fewer.program.at("--split"), "");
  EXPECT_EQ(fewer.log_every, 4);
  EXPECT_EQ(parse_split({"--resume", "--split", "5,1"}, "3").split, "5,1")
      << "given anew: choose_stages will refuse it";
}

TEST_F(RunFolderTest, ResumeTakesOverTheProgramsOwnOptions) {
  const auto parse_own = [&](std::vector<const char*> arguments) {
    int64_t every = 8;
    const ProgramInfo info{.about = "test", .add_options = [&](CommandLine& line) {
                             line.add("--every", every, "K", "k").shows_default().kept();
                           }};
    arguments.insert(arguments.begin(), "train");
    settle_plan(static_cast<int>(arguments.size()), arguments.data(), info);
    return every;
  };
  RunPlan options = parse({});
  options.program["--every"] = "5";
  make_checkpoint(options);
  EXPECT_EQ(parse_own({"--out", "elsewhere"}), 8);
  EXPECT_EQ(parse_own({"--resume", "--out", out_.c_str()}), 5);
  EXPECT_EQ(parse_own({"--resume", "--out", out_.c_str(), "--every", "5"}), 5);
  try {
    parse_own({"--resume", "--out", out_.c_str(), "--every", "6"});
    FAIL() << "a contradiction";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("--every 6 contradicts the run"), std::string::npos);
  }
}

TEST_F(RunFolderTest, ResumeTakesOverNothingElse) {
  RunPlan options = parse({"--cache", "/foreign"});
  options.program = {{"--config", "/etc/passwd"}, {"--max-restarts", "9"}};
  make_checkpoint(options);
  const RunPlan resumed = parse({"--resume", "--out", out_.c_str()});
  EXPECT_TRUE(resumed.program.empty());
  EXPECT_EQ(resumed.cache, default_plan().cache);
}

TEST(MainGuard, TurnsExceptionsIntoExitCodes) {
  const auto code = [](const std::function<int(int, char**)>& body) {
    return run_main(0, nullptr, body);
  };
  EXPECT_EQ(code([](int, char**) { return 7; }), 7);
  EXPECT_EQ(code([](int, char**) -> int { fail("broken"); }), 1);
  EXPECT_EQ(code([](int, char**) -> int { throw UsageError("unclear"); }), 2);
  EXPECT_EQ(code([](int, char**) -> int { throw std::bad_alloc(); }), 1);
  EXPECT_EQ(code([](int, char**) -> int { throw HelpRequested("help\n"); }), 0);
}

}  // namespace
}  // namespace lab::run_plan_test
