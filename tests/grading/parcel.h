// Parcel: what goes into a rank program and what comes back, as one file.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "common/tensor/tensor.h"

namespace lab::grading {

/// Named tensors, lists of doubles (exact) and texts. Reading a name that is not there throws
/// Error.
class Parcel {
 public:
  void set(const std::string& name, const Tensor& tensor) { tensors_[name] = tensor; }
  void set(const std::string& name, double number) { set(name, std::vector<double>{number}); }
  void set(const std::string& name, const std::vector<double>& numbers);
  void set(const std::string& name, const TokenBatch& batch);
  void set_text(const std::string& name, const std::string& text) { texts_[name] = text; }

  /// A parcel within this one: its entries have names that begin with "NAME/".
  void set(const std::string& name, const Parcel& part);
  Parcel part(const std::string& name) const;

  const Tensor& tensor(const std::string& name) const;
  double number(const std::string& name) const;
  std::vector<double> numbers(const std::string& name) const;
  TokenBatch batch(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  bool has(const std::string& name) const;
  bool empty() const { return tensors_.empty() && texts_.empty(); }

  /// `write` replaces the file in one step. `append` adds entries to it, or replaces entries,
  /// without writing the others again. `read` throws Error unless the file begins with a whole
  /// parcel. It ignores an incomplete append at the end: the writer was killed.
  void write(const std::filesystem::path& path) const;
  void append(const std::filesystem::path& path) const;
  static Parcel read(const std::filesystem::path& path);

 private:
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> texts_;
};

}  // namespace lab::grading
