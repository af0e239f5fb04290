#include "common/run/checkpoint/checkpoint_parts.h"

#include <map>
#include <memory>
#include <random>
#include <utility>

#include "common/error.h"
#include "common/io/files.h"
#include "common/io/json_file.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/checkpoint_messages.h"
#include "common/run/checkpoint/checkpoint_tensors.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenFile = ".written-by-rank-0";
constexpr int kTensorTag = 0x7E88;  // of tensors that rank 0 writes for others

/// A file of tensors that a rank has written, or asks rank 0 to write.
struct PartFile {
  std::string set;                                     // "model" or "optimizer"
  std::string name;                                    // of the file
  std::vector<std::pair<std::string, Shape>> tensors;  // names and shapes
  uint64_t checksum = 0;                               // once the file is written
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PartFile, set, name, tensors, checksum)

/// What a rank has done for a checkpoint.
struct PartReport {
  std::vector<PartFile> files;
  bool written = true;  // false: rank 0 must do it, with the tensors that this rank will send
  std::string error;    // empty: all went well
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PartReport, files, written, error)

std::string random_token() {
  std::random_device random;
  return to_hex(uint64_t{random()} << 32 | random());
}

// The groups that this replica of the stage writes, as files yet to be written.
PartReport share_of(const RankOfModel& rank, const std::vector<const SavedGroup*>& groups) {
  PartReport report;
  for (const SavedGroup* group : groups) {
    PartFile file{.set = set_of(*group),
                  .name = part_name(group->name, rank.stage, rank.stages),
                  .tensors = {}};
    for (const auto& [name, value] : group->tensors) file.tensors.push_back({name, value.shape()});
    report.files.push_back(std::move(file));
  }
  return report;
}

void write_part(const fs::path& folder, PartFile& file, const std::vector<NamedTensor>& tensors) {
  write_tensors(folder / file.name, file.set, tensors);
  file.checksum = file_checksum(folder / file.name);
}

// Rank 0 receives the tensors of rank `from` and writes them in its place. It receives all of them
// even if the disk is full, because their sender waits.
void write_for(int from, ProcessGroup& world, const fs::path& folder, PartReport& report) {
  for (PartFile& file : report.files) {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape] : file.tensors) {
      tensors.push_back({name, Tensor::empty(shape)});
      world.recv(tensors.back().value, from, kTensorTag);
    }
    if (report.error.empty()) report.error = failure_of([&] { write_part(folder, file, tensors); });
  }
}

void require_success(const std::vector<PartReport>& reports) {
  for (size_t rank = 0; rank < reports.size(); ++rank)
    require(reports[rank].error.empty(), "no checkpoint was saved: rank {}: {}", rank,
            reports[rank].error);
}

// Writes the index of both sets. Returns the checksums of all parts.
Checksums write_indices(const fs::path& folder, const RankOfModel& rank, const LlamaConfig& config,
                        const std::vector<PartReport>& reports) {
  struct Index {
    std::map<std::string, std::string> part_of;
    uint64_t numbers = 0;
  };
  std::map<std::string, Index> indices = {{kModelSet, {}}, {kOptimizerSet, {}}};
  Checksums checksums;
  for (const PartReport& report : reports)
    for (const PartFile& file : report.files) {
      Index& index = indices[file.set];
      require(checksums.emplace(file.name, file.checksum).second,
              "no checkpoint was saved: two ranks have written {}", file.name);
      for (const auto& [name, shape] : file.tensors) {
        uint64_t numel = 1;
        for (const int64_t extent : shape) numel *= static_cast<uint64_t>(extent);
        index.numbers += numel;
        require(index.part_of.emplace(name, file.name).second,
                "no checkpoint was saved: two ranks have written tensor \"{}\"", name);
      }
    }
  const auto weights = static_cast<uint64_t>(parameter_count(config));
  const uint64_t saved = indices[kModelSet].numbers;
  require(saved == weights || (rank.padded && saved > weights),
          "no checkpoint was saved: the parts of {} stages hold {} weights, the model has {}",
          rank.stages, saved, weights);
  for (const auto& [set, index] : indices)
    if (!checksums.contains(part_name(set, 0, 1)))
      write_tensor_index(folder, set, index.part_of, index.numbers * sizeof(float));
  return checksums;
}

}  // namespace

RankOfModel RankOfModel::in_mesh(ProcessGroup& world, int stages) {
  require(stages >= 1 && world.size() % stages == 0,
          "{} ranks do not make pipelines of {} stages each", world.size(), stages);
  return {.stage = world.rank() % stages,
          .stages = stages,
          .replica = world.rank() / stages,
          .replicas = world.size() / stages,
          .world = &world};
}

bool sees_file(const fs::path& file, const std::string& content) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) &&
         failure_of([&] { require(MappedFile(file).text() == content, "another file"); }).empty();
}

fs::path save_checkpoint_parts(const fs::path& run, const RankOfModel& rank,
                               const TrainingState& state, const LlamaConfig& config,
                               const std::vector<SavedGroup>& groups,
                               const TokenizerCopy& tokenizer, const SeesFile& sees) {
  if (rank.world == nullptr || rank.world->size() == 1)
    return save_checkpoint(run, state, config, groups, tokenizer);
  ProcessGroup& world = *rank.world;

  // 1. Rank 0 makes the folder and says where it is.
  std::unique_ptr<UnfinishedCheckpoint> unfinished;
  constexpr size_t kTokenSize = 16;
  const std::string invitation = done_by_rank_0(world, [&] {
    unfinished = std::make_unique<UnfinishedCheckpoint>(fs::absolute(run), state.step);
    const std::string token = random_token();
    write_file(unfinished->folder() / kTokenFile, token);
    return token + unfinished->folder().string();
  });
  const std::string token = invitation.substr(0, kTokenSize);
  const fs::path folder = invitation.substr(kTokenSize);

  // 2. Each rank writes its part, and reports.
  std::vector<const SavedGroup*> own;
  for (size_t i = 0; i < groups.size(); ++i)
    if (static_cast<int>(i) % rank.replicas == rank.replica) own.push_back(&groups[i]);
  PartReport report = share_of(rank, own);
  report.written = world.rank() == 0 || sees(folder / kTokenFile, token);
  if (report.written)
    report.error = failure_of([&] {
      for (size_t i = 0; i < own.size(); ++i) write_part(folder, report.files[i], own[i]->tensors);
    });
  std::vector<PartReport> reports;
  for (const std::string& text : gather_texts(world, dumped(report)))
    reports.push_back(nlohmann::json::parse(text).get<PartReport>());
  done_by_rank_0(world, [&] {
    require_success(reports);
    return "";
  });

  // 3. Rank 0 writes what others could not, and the rest.
  for (int other = 1; other < static_cast<int>(reports.size()); ++other)
    if (!reports[static_cast<size_t>(other)].written)
      write_for(other, world, folder, reports[static_cast<size_t>(other)]);
  if (!report.written)
    for (const SavedGroup* group : own)
      for (const NamedTensor& tensor : group->tensors) world.send(tensor.value, 0, kTensorTag);
  return done_by_rank_0(world, [&] {
    require_success(reports);
    const Checksums checksums = write_indices(folder, rank, config, reports);
    write_other_files(folder, state, config, tokenizer);
    fs::remove(folder / kTokenFile);
    return unfinished->publish(checksums).string();
  });
}

}  // namespace lab
