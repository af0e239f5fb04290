#include "common/run/checkpoint/training_state.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "common/error.h"
#include "common/io/files.h"
#include "common/io/json_file.h"
#include "common/run/checkpoint/checkpoint_folder.h"

namespace lab {
namespace {

constexpr const char* kFile = "training.json";
constexpr int kFormat = 3;
// The limit of all counts: far more than possible, and products with a number of ranks fit 64 bits.
constexpr int64_t kMost = int64_t{1} << 48;

TrainingState state_of(const nlohmann::json& json) {
  require(json.at("format") == kFormat, "written by another version of this program");
  TrainingState state;
  state.step = whole_number(json, "step", 0, kMost);
  state.optimizer_steps = whole_number(json, "optimizer_steps", 0, kMost);
  state.sampler = {.epoch = whole_number(json.at("sampler"), "epoch", 0, kMost),
                   .position = whole_number(json.at("sampler"), "position", 0, kMost)};
  state.data_fingerprint = from_hex(json.at("data_fingerprint").get<std::string>());
  json.at("seconds").get_to(state.seconds);
  json.at("last_loss").get_to(state.last_loss);
  const auto& validation = json.at("first_validation_loss");
  if (!validation.is_null()) state.first_validation_loss = validation.get<double>();
  state.plan = plan_from_json(json.at("options"));
  state.plan.validate();
  return state;
}

}  // namespace

void save_training_state(const std::filesystem::path& folder, const TrainingState& state) {
  nlohmann::ordered_json json = {
      {"format", kFormat},
      {"step", state.step},
      {"optimizer_steps", state.optimizer_steps},
      {"sampler", {{"epoch", state.sampler.epoch}, {"position", state.sampler.position}}},
      {"data_fingerprint", to_hex(state.data_fingerprint)},
      {"seconds", state.seconds},
      {"last_loss", state.last_loss},
      {"first_validation_loss", nullptr},
      {"options", plan_to_json(state.plan)},
  };
  if (state.first_validation_loss) json["first_validation_loss"] = *state.first_validation_loss;
  write_file(folder / kFile, json.dump(2) + "\n");
}

TrainingState load_training_state(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / kFile;
  std::error_code ignored;
  require(std::filesystem::exists(path, ignored), "{} has no {}: training cannot resume from it",
          checkpoint.string(), kFile);
  verify_checkpoint(checkpoint, {kFile});
  const nlohmann::json json = read_json_file(path);
  try {
    return state_of(json);
  } catch (const nlohmann::json::exception&) {
    fail("{}: fields are missing or of the wrong type", path.string());
  } catch (const std::invalid_argument&) {
    fail("{}: the fingerprint of the data is not a number", path.string());
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }
}

}  // namespace lab
