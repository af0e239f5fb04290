#include "common/run/training/training_run.h"

#include <algorithm>
#include <cmath>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/format.h"
#include "common/io/files.h"
#include "common/ops/precision.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/generation/generate.h"
#include "common/run/metrics/loss_plot.h"
#include "common/run/training/pipeline_setup.h"
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

std::unique_ptr<Optimizer> make_optimizer(const RunPlan& plan, const LlamaStage& model,
                                          AdamUpdate update) {
  return make_optimizer(plan, model.parameters().numel(), model.device(), update);
}

std::unique_ptr<Optimizer> make_optimizer(const RunPlan& plan, int64_t size, Device device,
                                          AdamUpdate update) {
  if (plan.optimizer == OptimizerKind::kSgd) return std::make_unique<Sgd>();
  return std::make_unique<Adam>(size, AdamConfig{}, update, static_cast<float>(plan.weight_decay),
                                device);
}

TrainingRun::TrainingRun(const RunPlan& plan, const TrainingParts& parts, Job* job)
    : plan_(plan),
      parts_(parts),
      job_(job),
      writes_(job == nullptr || job->world().rank() == 0),
      tokenizer_(copy_tokenizer(parts.tokenizer)) {
  if (!parts_.stages.empty())
    rank_ = RankOfModel::in_mesh(parts_.slices ? *parts_.same_slice : job->world(), plan.pp);
  if (parts_.shards) {
    rank_ = RankOfModel::in_pipeline(job->world());
    rank_.padded = !parts_.whole_tensors;
  }
  if (plan_.resume)
    folder_ = plan_.out;
  else if (writes_)
    folder_ = make_run_folder(plan_.out, source_folder() / "runs", plan_.run_name);
  if (writes_) lock_.emplace(folder_);
  if (plan_.resume) resume();
  state_.plan = plan_;
  state_.data_fingerprint = parts_.data.fingerprint();
  seconds_before_ = state_.seconds;
  saved_step_ = state_.step;
  first_step_ = state_.step + 1;
  interrupt_.emplace();
  if (!writes_) return;
  print_start();
  if (first_step_ == 1) write_file(options_file(folder_), plan_.config_file);
  metrics_.emplace(folder_ / "metrics.jsonl", state_.step);
  progress_.emplace(first_step_, plan_.steps);
}

TrainingRun::~TrainingRun() {
  if (!writes_ || state_.step > 0) return;
  std::error_code ignored;
  std::filesystem::remove(folder_ / "metrics.jsonl", ignored);
  std::filesystem::remove(options_file(folder_), ignored);
  std::filesystem::remove(folder_, ignored);  // does nothing unless it is empty
}

void TrainingRun::resume() {
  if (writes_) remove_unfinished_checkpoints(folder_);
  if (list_checkpoints(folder_).empty()) {
    if (writes_) fmt::print("resuming from the start: the run has no checkpoint yet\n");
    return;
  }
  const std::filesystem::path checkpoint = find_checkpoint(folder_);
  state_ = load_training_state(checkpoint);
  require(state_.data_fingerprint == parts_.data.fingerprint(),
          "--resume: the run in {} was trained on another corpus or with another tokenizer than {} "
          "and {}",
          folder_.string(), plan_.data.string(), plan_.tokenizer.string());
  const int64_t before = state_.plan.sequences_per_step();
  const int64_t now = plan_.sequences_per_step();
  require(before == now,
          "--resume: the run in {} was trained by {} of the model, with {} a step in all; {} would "
          "read {}; resume with as many",
          folder_.string(), counted(state_.plan.dp, "replica"), counted(before, "sequence"),
          plan_.dp, now);
  // Each replica has a shard of every epoch. With another number of replicas, the position within a
  // shard changes, so that all of them together are at the same place. (The limits of
  // load_training_state rule out an overflow.)
  state_.sampler.position = state_.sampler.position * state_.plan.dp / plan_.dp;
  require(state_.step <= plan_.steps,
          "--resume: the run in {} has done {}, more than --steps {}; to continue, give it more",
          folder_.string(), counted(state_.step, "step"), plan_.steps);
  if (parts_.load_shards)
    parts_.load_shards(checkpoint);
  else
    load_for_training(checkpoint, parts_.model, parts_.optimizer);
  parts_.optimizer.set_steps(state_.optimizer_steps);
  parts_.sampler.restore(state_.sampler);
  if (!writes_) return;
  fmt::print("resuming after step {} from {}\n", state_.step, display_path(checkpoint));
  if (state_.step == plan_.steps)
    fmt::print("note: the run has done its {}; to continue, give it more with --steps\n",
               counted(state_.step, "step"));
  if (state_.plan.steps != plan_.steps && plan_.decay == Decay::kCosine)
    fmt::print("note: the cosine schedule now ends at step {} instead of {}\n", plan_.steps,
               state_.plan.steps);
  if (state_.plan.precision != plan_.precision)
    fmt::print("note: the model is now computed in {} instead of {}\n", plan_.precision,
               state_.plan.precision);
}

void TrainingRun::print_start() const {
  const LlamaConfig& config = parts_.model.config();
  fmt::print("model   {} weights, {}, vocabulary {}\n", format_count(parameter_count(config)),
             counted(config.layers, "layer"), format_count(config.vocab_size));
  fmt::print("corpus  {} stories, {} tokens; {} stories are held out for validation\n",
             format_count(parts_.data.story_count(Split::kTrain)),
             format_count(parts_.data.token_count(Split::kTrain)),
             format_count(parts_.data.story_count(Split::kValidation)));
  std::string product;
  if (plan_.dp > 1) product += counted(plan_.dp, "replica") + " x ";
  if (plan_.accumulate > 1) product += counted(plan_.accumulate, "microbatch") + " x ";
  if (!product.empty()) product = fmt::format(" ({}{})", product, plan_.batch);
  fmt::print("step    {} of {}{}; {}\n", counted(plan_.sequences_per_step(), "sequence"),
             counted(config.context, "token"), product,
             parts_.model.device() == Device::kCpu ? fmt::format("threads: {}", thread_count())
                                                   : accelerator().name());
  const bool has_whole_weights = parts_.model.slice().ranks == 1 && !parts_.shards;
  if (parts_.model.device() == Device::kCpu && plan_.precision == "float32" && has_whole_weights &&
      cpu_gains_by_bfloat16())
    fmt::print("        this processor is faster with --precision bfloat16\n");
  fmt::print("folder  {}\n", display_path(folder_));
  if (plan_.division == Division::kReplicas) fmt::print("ranks   {}\n", plan_.dp);
  if (plan_.shard > 0)
    fmt::print("shards  {}, each with a shard of {} (ZeRO {})\n", counted(plan_.dp, "rank"),
               in_shards(plan_.shard), plan_.shard);
  if (!parts_.stages.empty()) {
    const std::string stages = describe_stages(parts_.stages);
    if (has_mesh(plan_.division))
      fmt::print("mesh    {} x {}, {}\n", plan_.dp, counted(plan_.pp, "stage"), stages);
    else
      fmt::print("stages  {}\n", stages);
    if (plan_.tp > 1) fmt::print("slices  {} ranks divide every layer\n", plan_.tp);
    if (plan_.division != Division::kStages)
      fmt::print("pipe    {}, {} x {}\n", plan_.schedule, plan_.waves,
                 counted(plan_.microbatches, "microbatch"));
  }
  std::fflush(stdout);
}

int64_t TrainingRun::begin() {
  if (job_ != nullptr) job_->agree("first step", fmt::format("{}", first_step_));
  if (first_step_ == 1) record_start();
  return first_step_;
}

void TrainingRun::record_start() {
  state_.first_validation_loss = parts_.validate();
  if (!writes_) return;
  if (state_.first_validation_loss)
    progress_->note(fmt::format("step 0/{}  validation loss {:.3f}", plan_.steps,
                                *state_.first_validation_loss));
  else
    progress_->note("note: the corpus is too small for a validation split of one sequence");
  progress_.emplace(first_step_, plan_.steps);  // the remaining time is estimated from here
}

bool TrainingRun::goes_on(int64_t step) {
  if (step == asked_step_) return goes_on_;
  asked_step_ = step;
  // A signal that only one rank received ends all of them, with the same exit code.
  stopped_by_ = interrupt_->signal();
  if (job_ != nullptr) stopped_by_ = largest(job_->world(), stopped_by_);
  goes_on_ = step <= plan_.steps && stopped_by_ == 0;
  return goes_on_;
}

std::vector<TokenBatch> TrainingRun::next_microbatches() {
  if (!since_record_) since_record_.emplace();
  std::vector<TokenBatch> microbatches;
  for (int64_t i = 0; i < plan_.accumulate; ++i)
    microbatches.push_back(
        parts_.data.batch(Split::kTrain, parts_.sampler.next(plan_.batch), plan_.model.context));
  return microbatches;
}

bool TrainingRun::validation_due(int64_t step) const {
  return step == plan_.steps || (plan_.validate_every > 0 && step % plan_.validate_every == 0);
}

bool TrainingRun::record_due(int64_t step) {
  return step == 1 || step % plan_.log_every == 0 || validation_due(step) || checkpoint_due(step);
}

void TrainingRun::record(int64_t step, double loss) {
  const int64_t tokens = plan_.sequences_per_step() * plan_.model.context * (step - state_.step);
  StepRecord record{.step = step,
                    .loss = loss,
                    .tokens_per_second = static_cast<double>(tokens) / since_record_->seconds(),
                    .learning_rate = plan_.learning_rates().at(step)};
  since_record_.reset();
  if (validation_due(step)) record.val_loss = parts_.validate();
  require(std::isfinite(loss) && std::isfinite(record.val_loss.value_or(0.0)),
          "{} (the loss is {})", diverged(step, plan_.learning_rate),
          std::isnan(loss) ? "not a number" : fmt::format("{}", loss));
  record.seconds = seconds_before_ + stopwatch_.seconds();
  const bool validated = record.val_loss.has_value();
  if (step == 1 && !validated) record.val_loss = state_.first_validation_loss;
  if (lock_) lock_->check_place();
  if (metrics_) metrics_->append(record);
  state_.step = step;
  state_.seconds = record.seconds;
  state_.last_loss = loss;
  if (!writes_) return;
  progress_->update(record);
  if (validated)
    progress_->note(
        fmt::format("step {}/{}  validation loss {:.3f}", step, plan_.steps, *record.val_loss));
}

bool TrainingRun::checkpoint_due(int64_t step) {
  return !goes_on(step + 1) || (plan_.checkpoint_every > 0 && step % plan_.checkpoint_every == 0);
}

void TrainingRun::check_weights(const SavedGroup& weights) const {
  bool finite = true;
  for (const NamedTensor& tensor : weights.tensors) {
    const Tensor on_host = tensor.value.to(Device::kCpu);
    finite = finite && std::ranges::all_of(on_host.values(),
                                           [](float weight) { return std::isfinite(weight); });
  }
  if (rank_.world != nullptr) finite = all_true(job_->world(), finite);
  require(finite, "{} (weights are no longer numbers; no checkpoint is written)",
          diverged(state_.step, plan_.learning_rate));
}

void TrainingRun::save_checkpoint() {
  std::vector<SavedGroup> tensors =
      parts_.shards ? parts_.shards() : saved_tensors(parts_.model, parts_.optimizer);
  check_weights(tensors.front());
  if (lock_) lock_->check_place();
  if (parts_.slices) tensors = gathered(tensors, parts_.model, *parts_.slices);
  const LlamaConfig& config = parts_.model.config();
  state_.optimizer_steps = parts_.optimizer.steps();
  state_.sampler = parts_.sampler.state();
  const bool has_tensors = !parts_.slices || parts_.slices->rank() == 0;
  if (has_tensors && (writes_ || rank_.world != nullptr))
    save_checkpoint_parts(folder_, rank_, state_, config, tensors, tokenizer_);
  if (writes_) write_plot();
  saved_step_ = state_.step;
}

void TrainingRun::write_plot() const {
  const std::string title = folder_.filename().string() + ": loss over the course of training";
  write_file(folder_ / "loss.svg", loss_plot_svg(metrics_->history(), title));
}

void TrainingRun::finish() {
  if (progress_) progress_->finish();
  if (saved_step_ < state_.step) save_checkpoint();
  if (writes_ && first_step_ > plan_.steps) write_plot();  // it was killed before it could
  const std::string folder = display_path(folder_);
  if (lock_) lock_->check_place();
  exit_code_ = state_.step < plan_.steps ? 128 + stopped_by_ : 0;
  interrupt_.reset();
  if (!writes_) return;
  if (exit_code_ != 0 && state_.step == 0) {
    fmt::print("\nstopped before the first step\n");
    return;
  }
  if (exit_code_ != 0) {
    fmt::print("\nstopped after step {}", state_.step);
    if (parts_.resumable)
      fmt::print("; to continue: the same program with --resume --out {}\n", folder);
    else
      fmt::print("; a run of this kind cannot go on\n");
    return;
  }
  const auto& history = metrics_->history();
  fmt::print("\n{} in {}", counted(state_.step, "step"), format_duration(state_.seconds));
  if (!history.empty() && history.back().val_loss && state_.first_validation_loss)
    fmt::print("; validation loss from {:.3f} to {:.3f}", *state_.first_validation_loss,
               *history.back().val_loss);
  fmt::print("\nloss curve  {}/loss.svg\nmetrics     {}/metrics.jsonl\ncheckpoint  {}/{}\n", folder,
             folder, folder, checkpoint_name(state_.step));
}

void TrainingRun::tell_story() const {
  if (exit_code_ != 0 || !writes_ || plan_.story_tokens == 0) return;
  if (parts_.shards && !parts_.whole_tensors) return;
  if (parts_.stages.empty() && !parts_.shards)
    print_story(parts_.model, parts_.tokenizer, plan_);
  else
    print_story(load_model(find_checkpoint(folder_)), parts_.tokenizer, plan_);
}

}  // namespace lab
