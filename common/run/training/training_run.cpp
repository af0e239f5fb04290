// TrainingRun: the folder of a training run and everything written there.
#include "common/run/training/training_run.h"

#include <algorithm>
#include <cmath>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/io/files.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/training/loss_plot.h"
#include "common/tensor/accelerator.h"
#include "common/tensor/parallel.h"

namespace lab {
namespace {

std::string diverged(int64_t step, double learning_rate) {
  return fmt::format("step {}: training has diverged; try a lower --lr than {}", step,
                     learning_rate);
}

TokenizerCopy copy_tokenizer(const Tokenizer& tokenizer) {
  return {.file = std::string(MappedFile(tokenizer.path()).text()),
          .bos = tokenizer.bos(),
          .eos = tokenizer.eos()};
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& options, const LlamaStage& model,
                                          AdamUpdate update) {
  if (options.optimizer == OptimizerKind::kSgd) return std::make_unique<Sgd>();
  return std::make_unique<Adam>(model.parameters().numel(), AdamConfig{}, update,
                                static_cast<float>(options.weight_decay), model.device());
}

TrainingRun::TrainingRun(const TrainOptions& options, const TrainingParts& parts, RunFiles files)
    : options_(options), parts_(parts), files_(files), tokenizer_(copy_tokenizer(parts.tokenizer)) {
  if (options_.resume)
    folder_ = options_.out;
  else if (files_ == RunFiles::kWritten)
    folder_ = make_run_folder(options_.out, source_folder() / "runs", options_.run_name);
  if (files_ == RunFiles::kWritten) lock_.emplace(folder_);
  if (options_.resume) resume();
  state_.options = options_;
  state_.data_fingerprint = parts_.data.fingerprint();
  seconds_before_ = state_.seconds;
  saved_step_ = state_.step;
  interrupt_.emplace();
  if (files_ == RunFiles::kNone) return;
  print_start();
  if (!options_.resume) write_file(folder_ / "config.ini", options_.config_file);
  metrics_.emplace(folder_ / "metrics.jsonl", state_.step);
  progress_.emplace(first_step(), options_.steps);
}

TrainingRun::~TrainingRun() {
  if (files_ == RunFiles::kNone || state_.step > 0) return;
  std::error_code ignored;
  std::filesystem::remove(folder_ / "metrics.jsonl", ignored);
  std::filesystem::remove(folder_ / "config.ini", ignored);
  std::filesystem::remove(folder_, ignored);  // does nothing unless it is empty
}

void TrainingRun::resume() {
  if (files_ == RunFiles::kWritten) remove_unfinished_checkpoints(folder_);
  const std::filesystem::path checkpoint = find_checkpoint(folder_);
  state_ = load_training_state(checkpoint);
  require(state_.data_fingerprint == parts_.data.fingerprint(),
          "--resume: the run in {} was trained on another corpus or with another tokenizer than {} "
          "and {}",
          folder_.string(), options_.data.string(), options_.tokenizer.string());
  const int64_t before = sequences_per_step(state_.options);
  const int64_t now = sequences_per_step(options_);
  require(
      before == now,
      "--resume: the run in {} was trained by {} replicas of the model, which read {} sequences "
      "a step; {} would read {}; resume with as many",
      folder_.string(), state_.options.ranks, before, options_.ranks, now);
  // Each replica has a shard of every epoch. With another number of replicas, the position within a
  // shard changes, so that all of them together are at the same place. (The limits of
  // load_training_state rule out an overflow.)
  state_.sampler.position = state_.sampler.position * state_.options.ranks / options_.ranks;
  require(state_.step < options_.steps,
          "--resume: the run in {} has done its {} steps; to continue, give it more with --steps",
          folder_.string(), state_.step);
  load_for_training(checkpoint, parts_.model, parts_.optimizer);
  parts_.optimizer.set_steps(state_.optimizer_steps);
  parts_.sampler.restore(state_.sampler);
  if (files_ == RunFiles::kNone) return;
  fmt::print("resuming after step {} from {}\n", state_.step, display_path(checkpoint));
  if (state_.options.steps != options_.steps && options_.schedule == Decay::kCosine)
    fmt::print("note: the cosine schedule now ends at step {} instead of {}\n", options_.steps,
               state_.options.steps);
  if (state_.options.precision != options_.precision)
    fmt::print("note: the model is now computed in {} instead of {}\n", options_.precision,
               state_.options.precision);
}

void TrainingRun::print_start() const {
  const LlamaConfig& config = parts_.model.config();
  fmt::print("model   {} weights, {} layers, vocabulary {}\n",
             format_count(parameter_count(config)), config.layers, format_count(config.vocab_size));
  fmt::print("corpus  {} stories, {} tokens; {} stories are held out for validation\n",
             format_count(parts_.data.story_count(Split::kTrain)),
             format_count(parts_.data.token_count(Split::kTrain)),
             format_count(parts_.data.story_count(Split::kValidation)));
  const std::string replicas = options_.ranks > 1 ? fmt::format("{} x ", options_.ranks) : "";
  fmt::print("step    {}{} x {} sequences of {} tokens; {}\n", replicas, options_.accumulate,
             options_.batch, config.context,
             parts_.model.device() == Device::kCpu ? fmt::format("threads: {}", thread_count())
                                                   : accelerator().name());
  fmt::print("folder  {}\n", display_path(folder_));
  std::fflush(stdout);
}

bool TrainingRun::goes_on(int64_t step) const {
  return step <= options_.steps && !interrupt_->requested();
}

bool TrainingRun::validation_due(int64_t step) const {
  return step == options_.steps ||
         (options_.validate_every > 0 && step % options_.validate_every == 0);
}

void TrainingRun::record_start(std::optional<double> validation_loss) {
  state_.first_validation_loss = validation_loss;
  if (files_ == RunFiles::kNone) return;
  if (validation_loss)
    progress_->note(
        fmt::format("step 0/{}  validation loss {:.3f}", options_.steps, *validation_loss));
  else
    progress_->note("note: the corpus is too small for a validation split of one sequence");
  progress_.emplace(first_step(), options_.steps);  // the remaining time is estimated from here
}

void TrainingRun::record(StepRecord record) {
  require(std::isfinite(record.loss) && std::isfinite(record.val_loss.value_or(0.0)),
          "{} (the loss is {})", diverged(record.step, options_.learning_rate), record.loss);
  record.seconds = seconds_before_ + stopwatch_.seconds();
  if (record.step == 1 && !record.val_loss) record.val_loss = state_.first_validation_loss;
  if (metrics_) metrics_->append(record);
  state_.step = record.step;
  state_.seconds = record.seconds;
  state_.last_loss = record.loss;
  if (files_ == RunFiles::kNone) return;
  progress_->update(record);
  if (record.val_loss && validation_due(record.step))
    progress_->note(fmt::format("step {}/{}  validation loss {:.3f}", record.step, options_.steps,
                                *record.val_loss));
}

bool TrainingRun::checkpoint_due(int64_t step) const {
  return step == options_.steps || interrupt_->requested() ||
         (options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0);
}

void TrainingRun::check_weights() const {
  const Tensor parameters = parts_.model.parameters().to(Device::kCpu);
  const std::span<const float> weights = parameters.values();
  bool finite = std::all_of(weights.begin(), weights.end(),
                            [](float weight) { return std::isfinite(weight); });
  if (parts_.rank.world != nullptr) finite = all_true(*parts_.rank.world, finite);
  require(finite, "{} (weights are no longer numbers; no checkpoint is written)",
          diverged(state_.step, options_.learning_rate));
}

void TrainingRun::save_checkpoint() {
  check_weights();
  const std::vector<SavedGroup> tensors = saved_tensors(parts_.model, parts_.optimizer);
  const LlamaConfig& config = parts_.model.config();
  state_.optimizer_steps = parts_.optimizer.steps();
  state_.sampler = parts_.sampler.state();
  if (parts_.rank.world != nullptr)
    save_checkpoint_parts(folder_, parts_.rank, state_, config, tensors, tokenizer_);
  else if (files_ == RunFiles::kWritten)
    lab::save_checkpoint(folder_, state_, config, tensors, tokenizer_);
  if (files_ == RunFiles::kWritten) write_plot();
  saved_step_ = state_.step;
}

void TrainingRun::write_plot() const {
  const std::string title = folder_.filename().string() + ": loss over the course of training";
  write_file(folder_ / "loss.svg", loss_plot_svg(metrics_->history(), title));
}

int TrainingRun::finish() {
  if (progress_) progress_->finish();
  if (saved_step_ < state_.step) save_checkpoint();
  const std::string folder = display_path(folder_);
  const int exit_code = state_.step < options_.steps ? interrupt_->exit_code() : 0;
  interrupt_.reset();
  if (files_ == RunFiles::kNone) return exit_code;
  if (exit_code != 0 && state_.step == 0) {
    fmt::print("\nstopped before the first step\n");
    return exit_code;
  }
  if (exit_code != 0) {
    fmt::print("\nstopped after step {}; to continue: the same program with --resume --out {}\n",
               state_.step, folder);
    return exit_code;
  }
  const auto& history = metrics_->history();
  fmt::print("\n{} steps in {}", state_.step, format_duration(state_.seconds));
  if (!history.empty() && history.back().val_loss && state_.first_validation_loss)
    fmt::print("; validation loss from {:.3f} to {:.3f}", *state_.first_validation_loss,
               *history.back().val_loss);
  fmt::print("\nloss curve  {}/loss.svg\nmetrics     {}/metrics.jsonl\ncheckpoint  {}/{}\n", folder,
             folder, folder, checkpoint_name(state_.step));
  return 0;
}

}  // namespace lab
