// FileStore: a store in a folder that all ranks can see, for use where no port can be opened.
#pragma once

#include <filesystem>

#include "common/comm/store/store.h"

namespace lab {

/// One file per key, replaced as a whole; `add` holds a lock (flock) on a file of the folder. A
/// waiting `get` looks every 10 ms. Every job needs an empty folder; it is made if it does not
/// exist, and whoever made the job removes it.
class FileStore final : public Store {
 public:
  /// Throws Error if the folder cannot be made or written to.
  explicit FileStore(const std::filesystem::path& folder);

  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get_within(const std::string& key,
                                        std::chrono::milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  std::filesystem::path file_of(const std::string& key) const;
  std::optional<std::string> read(const std::string& key) const;

  std::filesystem::path folder_;
};

}  // namespace lab
