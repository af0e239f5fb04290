#include "common/run/checkpoint/checkpoint_folder.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/error.h"
#include "common/io/files.h"
#include "common/io/json_file.h"
#include "common/parse_number.h"
#include "common/printable.h"

namespace lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kUnfinishedPrefix = ".checkpoint-";
constexpr const char* kChecksums = "checksums.json";

// The step in "checkpoint-000200"; nothing for other names.
std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto step = parse_number<int64_t>(std::string_view(name).substr(kPrefix.size()));
  return step.value_or(-1) < 0 ? std::nullopt : step;
}

// "checkpoint-000200/model.safetensors", for messages.
std::string short_name(const fs::path& checkpoint, const std::string& file) {
  return (checkpoint.filename() / file).string();
}

void write_checksums(const fs::path& folder, Checksums known) {
  Json files = Json::object();
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const auto found = known.find(name);
    files[name] = to_hex(found != known.end() ? found->second : file_checksum(entry.path()));
    if (found != known.end()) known.erase(found);
  }
  for (const auto& [name, value] : known)
    fail("{}: {} was written by another process, but cannot be seen here", folder.string(), name);
  const std::string listing = files.dump();
  const Json json = {{"algorithm", "XXH3-64"},
                     {"files", files},
                     {"listing", to_hex(checksum(std::as_bytes(std::span(listing))))}};
  write_file(folder / kChecksums, json.dump(2) + "\n");
}

// File names and checksums, after checking the list against its own checksum.
Json read_checksums(const fs::path& checkpoint) {
  const std::string name = short_name(checkpoint, kChecksums);
  const Json json = read_json_file(checkpoint / kChecksums);
  try {
    const Json& files = json.at("files");
    const std::string listing = files.dump();
    const uint64_t expected = from_hex(json.at("listing").get<std::string>());
    require(files.is_object() && checksum(std::as_bytes(std::span(listing))) == expected,
            "{} is damaged: it does not match its own checksum", name);
    return files;
  } catch (const Json::exception&) {
    fail("{} is damaged: fields are missing", name);
  } catch (const std::invalid_argument&) {
    fail("{} is damaged: a checksum is not a number", name);
  }
}

fs::path temporary_name(const fs::path& run, int64_t step, const char* kind) {
  return run / fmt::format(".{}.{}-{}", checkpoint_name(step), kind, getpid());
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  require(!error, "cannot rename {} to {}: {}", from.string(), to.string(), error.message());
}

void remove_old_checkpoints(const fs::path& run, int64_t newest_step) {
  std::vector<fs::path> all = list_checkpoints(run);
  std::erase_if(all, [&](const fs::path& path) { return *step_of(path) > newest_step; });
  for (size_t i = 0; i + kCheckpointsKept < all.size(); ++i) {
    std::error_code ignored;  // a superfluous checkpoint is no reason to stop a run
    fs::remove_all(all[i], ignored);
  }
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:06}", kPrefix, step); }

std::vector<fs::path> list_checkpoints(const fs::path& run) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(run, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (step_of(it->path()) && fs::exists(it->path() / kChecksums, ignored))
      found.push_back(it->path());
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return *step_of(a) < *step_of(b); });
  return found;
}

fs::path find_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  require(fs::is_directory(folder, ignored), "{}: no such folder", folder.string());
  if (fs::exists(folder / "config.json", ignored)) return folder;
  const auto checkpoints = list_checkpoints(folder);
  require(!checkpoints.empty(), "{}: neither a checkpoint (no config.json) nor a run with one",
          folder.string());
  return checkpoints.back();
}

UnfinishedCheckpoint::UnfinishedCheckpoint(fs::path run, int64_t step)
    : run_(std::move(run)), step_(step), folder_(temporary_name(run_, step, "unfinished")) {
  std::error_code error;
  fs::create_directories(folder_, error);
  require(!error, "cannot create {}: {}", folder_.string(), error.message());
}

UnfinishedCheckpoint::~UnfinishedCheckpoint() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);  // if published, there is nothing under this name
}

fs::path UnfinishedCheckpoint::publish(Checksums known) {
  write_checksums(folder_, std::move(known));
  sync_folder(folder_);
  const fs::path target = run_ / checkpoint_name(step_);
  const fs::path replaced = temporary_name(run_, step_, "replaced");
  std::error_code error;
  if (fs::exists(target, error)) rename_folder(target, replaced);
  try {
    rename_folder(folder_, target);
  } catch (const Error&) {
    fs::rename(replaced, target, error);
    throw;
  }
  sync_folder(run_);
  fs::remove_all(replaced, error);
  remove_old_checkpoints(run_, step_);
  return target;
}

uint64_t file_checksum(const fs::path& file) { return checksum(MappedFile(file).bytes()); }

void verify_checkpoint(const fs::path& checkpoint, const std::vector<std::string>& files) {
  std::error_code ignored;
  if (!fs::exists(checkpoint / kChecksums, ignored)) return;
  const Json expected = read_checksums(checkpoint);
  std::vector<std::string> names = files;
  if (names.empty())
    for (const auto& [file, value] : expected.items()) names.push_back(file);
  for (const std::string& file : names) {
    const std::string name = short_name(checkpoint, printable(file));
    require(fs::exists(checkpoint / file, ignored), "{} is missing", name);
    require(expected.contains(file), "{} does not belong to this checkpoint: {} does not list it",
            name, kChecksums);
    const std::string actual = to_hex(file_checksum(checkpoint / file));
    const Json& value = expected[file];
    require(value == actual,
            "{} is damaged: its checksum is {}, not {}; remove the folder to use the checkpoint "
            "before it",
            name, actual, value.is_string() ? printable(value.get<std::string>()) : "");
  }
}

void remove_unfinished_checkpoints(const fs::path& run) {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (fs::directory_iterator it(run, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(kUnfinishedPrefix))
      unfinished.push_back(it->path());
  for (const fs::path& path : unfinished) fs::remove_all(path, error);
}

}  // namespace lab
