// What students get wrong in a block, as the numbers that it would produce.
#pragma once

#include <string>
#include <vector>

#include "tests/labs/10_tensor_parallel/block_oracle.h"

namespace lab10 {

/// The mistakes of one rank, whose slice is `own`. `where`: "mlp_backward, down_proj.weight: "
/// begins the messages.
class BlockMistakes {
 public:
  BlockMistakes(const BlockCase& c, Block block, const Values& values, const BlockResult& whole,
                const lab::TensorSlice& own)
      : case_(c), block_(block), values_(values), whole_(whole), own_(own) {}

  std::vector<Mistake> kept(const std::string& where, const std::string& tensor, size_t m) const;
  std::vector<Mistake> output(const std::string& where, size_t m) const;
  std::vector<Mistake> gradient(const std::string& where, size_t m) const;
  /// Of a weight: a matrix or the norm's.
  std::vector<Mistake> weight(const std::string& where, const std::string& parameter) const;

 private:
  double ranks() const { return own_.ranks; }
  Numbers leftover(const Numbers& like) const { return Numbers(like.size(), case_.leftover); }
  Numbers slice_of(const std::string& parameter, const Tensor& whole) const {
    return numbers_of(lab::slice_of(parameter, whole, own_));
  }
  BlockResult of_this_rank() const { return compute(case_, block_, only_slice(values_, own_)); }
  /// With the weights of the step before.
  BlockResult before() const { return compute(case_, block_, initial_values(case_)); }
  BlockResult not_rotated() const { return compute(case_, block_, values_, /*rotates=*/false); }
  /// The output of attention over sequences that were taken for a single one.
  Tensor in_one_sequence(size_t m) const;

  const BlockCase& case_;
  Block block_;
  const Values& values_;
  const BlockResult& whole_;
  lab::TensorSlice own_;
};

}  // namespace lab10
