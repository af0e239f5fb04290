// The oracle is the library's whole layer with one block switched off: a block whose last matrix is
// 0 adds nothing. A rank's own contribution is that of a layer in which the other ranks' slices are
// 0.
#include "tests/labs/10_tensor_parallel/blocks.h"

#include <map>
#include <random>

#include "common/model/layer.h"
#include "common/ops/ops.h"
#include "tests/labs/10_tensor_parallel/slices.h"

namespace lab10 {

using lab::grading::Call;

namespace {

struct Case {
  std::string name;
  lab::LlamaConfig model;
  int64_t batch = 1;
  int64_t length = 4;
  size_t microbatches = 2;
  double leftover = 0;
  uint64_t seed = 1;

  int64_t rows() const { return batch * length; }
};

using Values = std::map<std::string, Tensor>;

/// Of layer 0. Norms are not 1, and matrices large enough for softmax and SiLU to bend.
Values draw_values(const Case& c) {
  const lab::Weights weights(c.model, {.first_layer = 0, .last_layer = 1}, lab::Device::kCpu, 1);
  Values values;
  for (const lab::Parameter& parameter : weights.named) {
    const Tensor value = draw_tensor(parameter.value.shape(), 0.6, c.seed + 10 + values.size());
    if (value.dims() == 1)
      for (float& number : value.values()) number += 1.0F;
    values[parameter.name] = value;
  }
  return values;
}

Tensor input_of(const Case& c, size_t m) {
  return draw_tensor({c.rows(), c.model.dim}, 1.5, c.seed + 100 + m);
}
Tensor gradient_of(const Case& c, size_t m) {
  return draw_tensor({c.rows(), c.model.dim}, 1.0, c.seed + 200 + m);
}

bool belongs_to(Block block, const std::string& name) {
  const bool attention = name.find("self_attn") != std::string::npos ||
                         name.find("input_layernorm") != std::string::npos;
  return attention == (block == Block::kAttention);
}

/// The values without what other slices hold.
Values only_slice(const Values& values, const lab::TensorSlice& own) {
  Values masked;
  for (const auto& [name, value] : values) {
    masked[name] = Tensor::zeros(value.shape());
    lab::slice_of(name, masked[name], own).copy_from(lab::slice_of(name, value, own));
  }
  return masked;
}

struct Result {
  std::vector<Numbers> outputs;           // per microbatch
  std::vector<Numbers> gradients;         // likewise, of the input
  std::map<std::string, Tensor> weights;  // the gradients of the block's weights
};

/// The block in one process. `rotates`: whether positions are encoded.
Result compute(const Case& c, Block block, const Values& values, bool rotates = true) {
  lab::Weights weights(c.model, {.first_layer = 0, .last_layer = 1}, lab::Device::kCpu, 1);
  for (const lab::Parameter& parameter : weights.named)
    parameter.value.copy_from(values.at(parameter.name));
  lab::LayerWeights& layer = weights.layers[0];
  (block == Block::kMlp ? layer.attention_out : layer.down).value.fill(0.0F);
  const Tensor angles = lab::rope_table(c.model.context, c.model.head_dim(), c.model.rope_theta);
  const int64_t half = c.model.head_dim() / 2;
  if (!rotates) {
    angles.columns(0, half).fill(1.0F);
    angles.columns(half, 2 * half).fill(0.0F);
  }
  const lab::LayerShape shape{c.model, c.batch, c.length};
  lab::LayerScratch scratch(c.model, c.batch, c.length, {});
  Result result;
  for (size_t m = 0; m < c.microbatches; ++m) {
    lab::LayerActivations kept(c.model, c.batch, c.length, {});
    const Tensor input = input_of(c, m);
    const Tensor output = Tensor::empty(input.shape());
    lab::layer_forward(shape, layer, angles, input, kept, scratch, output);
    result.outputs.push_back(numbers_of(output));
    const Tensor gradient = gradient_of(c, m);
    lab::layer_backward(shape, layer, angles, input, kept, scratch, gradient);
    result.gradients.push_back(numbers_of(gradient));
  }
  for (const lab::Parameter& parameter : weights.named)
    if (belongs_to(block, parameter.name)) result.weights[parameter.name] = parameter.gradient;
  return result;
}

/// Judges one call.
class Judge {
 public:
  Judge(const Case& c, Block block, const std::vector<Parcel>& ranks)
      : case_(c),
        block_(block),
        values_(draw_values(c)),
        whole_(compute(c, block, values_)),
        ranks_(ranks) {}

  void outputs() const {
    for (size_t m = 0; m < case_.microbatches; ++m)
      for (size_t r = 0; r < ranks_.size(); ++r) {
        expect_tensor(fmt::format("{}_forward: {} on rank {}, microbatch {}", name(),
                                  block_ == Block::kMlp ? "output" : "kept.middle", r, m),
                      ranks_[r].tensor(fmt::format("output.{}", m)), whole_.outputs[m],
                      [&] { return output_mistakes(r, m); });
        expect_all_reduces(name() + "_forward", ranks_[r].part(fmt::format("forward.sent.{}", m)),
                           talks(), case_.rows() * case_.model.dim);
      }
  }

  void gradients() const {
    for (size_t m = case_.microbatches; m-- > 0;)
      for (size_t r = 0; r < ranks_.size(); ++r)
        expect_tensor(
            fmt::format("{}_backward: the gradient of its input on rank {}, microbatch {}", name(),
                        r, m),
            ranks_[r].tensor(fmt::format("gradient.{}", m)), whole_.gradients[m],
            [&] { return gradient_mistakes(r, m); });
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const auto& [parameter, whole] : whole_.weights) weight(r, parameter, whole);
      for (size_t m = 0; m < case_.microbatches; ++m)
        expect_all_reduces(name() + "_backward", ranks_[r].part(fmt::format("backward.sent.{}", m)),
                           talks(), case_.rows() * case_.model.dim);
      for (const auto& [parameter, value] : values_)
        expect_tensor("the value of " + parameter + ", which is only read,",
                      ranks_[r].tensor("value." + parameter),
                      numbers_of(lab::slice_of(parameter, value, own(r))));
    }
  }

 private:
  std::string name() const { return block_ == Block::kMlp ? "mlp" : "attention"; }
  lab::TensorSlice own(size_t r) const { return slice(r, ranks_.size()); }
  int talks() const { return ranks_.size() > 1 ? 1 : 0; }
  double times() const { return static_cast<double>(ranks_.size()); }
  Result of_slice(size_t r) const { return compute(case_, block_, only_slice(values_, own(r))); }

  std::vector<Mistake> output_mistakes(size_t r, size_t m) const {
    const Numbers input = lab10::numbers_of(input_of(case_, m));
    const Numbers& right = whole_.outputs[m];
    const std::string forward = name() + "_forward";
    const Numbers partial = of_slice(r).outputs[m];
    Numbers products(right.size());  // without the residual, of this rank
    products = plus(partial, input, -1);
    std::vector<Mistake> all{
        {partial, forward + ": only what this rank's slice contributes: the last matrix of a block "
                            "is row parallel, its products are summed over the ranks"},
        {products, forward + ": only this rank's slice, and without the residual path"},
        {plus(right, input, times() - 1),
         forward + ": the residual path is in the sum once per rank: add it after the sum"},
        {plus(right, input, -1), forward + ": the residual path is missing: the block is added to "
                                           "its input"}};
    if (block_ == Block::kAttention)
      all.push_back({compute(case_, block_, values_, /*rotates=*/false).outputs[m],
                     forward + ": queries and keys are not rotated (rope)"});
    return all;
  }

  std::vector<Mistake> gradient_mistakes(size_t r, size_t m) const {
    const Numbers residual = lab10::numbers_of(gradient_of(case_, m));
    const Numbers& right = whole_.gradients[m];
    const std::string backward = name() + "_backward";
    return {{of_slice(r).gradients[m],
             backward + ": only what has passed through this rank's slice: the gradient of the "
                        "norm's output is the sum over the ranks (copy_to_ranks, backward)"},
            {plus(right, residual, times() - 1),
             backward + ": the residual path is in the sum once per rank: sum the gradient of the "
                        "norm's output, before rmsnorm_backward adds it"},
            {plus(right, residual, -1), backward + ": the residual path is missing: "
                                                   "rmsnorm_backward adds to the gradient"},
            {plus(residual, plus(right, residual, -1), times()),
             backward + ": the gradient of the output is summed over the ranks, although it is the "
                        "same on all of them"},
            {residual, backward + ": nothing has come through the block"}};
  }

  void weight(size_t r, const std::string& parameter, const Tensor& whole) const {
    const Numbers sum = numbers_of(lab::slice_of(parameter, whole, own(r)));
    const Numbers leftover(sum.size(), case_.leftover);
    const bool is_norm = whole.dims() == 1;
    expect_tensor(
        fmt::format("{}_backward: the gradient of {} on rank {}", name(), parameter, r),
        ranks_[r].tensor(parameter), plus(sum, leftover),
        [&]() -> std::vector<Mistake> {
          const std::string at = name() + "_backward, " + parameter;
          std::vector<Mistake> all{
              {sum, at + ": its gradient is overwritten; it is added up over microbatches"},
              {leftover, at + ": its gradient is as it was"}};
          if (is_norm) {
            all.push_back({plus(leftover, numbers_of(of_slice(r).weights.at(parameter))),
                           at + ": the gradient of the norm is that of this rank's slice alone: "
                                "complete the gradient of its output before rmsnorm_backward"});
            all.push_back({plus(leftover, sum, times()),
                           at + ": the gradient of the norm is counted once per rank: it is "
                                "complete on every rank"});
          }
          if (parameter.find("q_proj") != std::string::npos ||
              parameter.find("k_proj") != std::string::npos)
            all.push_back(
                {plus(leftover,
                      numbers_of(lab::slice_of(
                          parameter, compute(case_, block_, values_, false).weights.at(parameter),
                          own(r)))),
                 at + ": queries and keys are not rotated (rope)"});
          return all;
        },
        100.0 * static_cast<double>(case_.rows()));
  }

  static Numbers numbers_of(const Tensor& tensor) { return lab10::numbers_of(tensor); }

  const Case& case_;
  Block block_;
  Values values_;
  Result whole_;
  const std::vector<Parcel>& ranks_;
};

lab::LlamaConfig model(int64_t heads, int64_t kv_heads, int64_t width, int64_t hidden) {
  return {.vocab_size = 11,
          .dim = heads * width,
          .heads = heads,
          .kv_heads = kv_heads,
          .layers = 1,
          .hidden_dim = hidden,
          .context = 9};
}

/// For n ranks; the simplest comes first.
std::vector<Case> draw_cases(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t limit) { return static_cast<int64_t>(random() % limit); };
  std::vector<Case> cases{
      {.name = "one microbatch", .model = model(n, n, 4, 2 * n), .microbatches = 1},
      {.name = "several heads a rank, gradients left over",
       .model = model(2 * n, 2 * n, 2, 3 * n),
       .batch = 2,
       .length = 5,
       .leftover = 0.75},
      {.name = "the same shapes, other numbers",
       .model = model(2 * n, 2 * n, 2, 3 * n),
       .batch = 2,
       .length = 5},
      {.name = "grouped queries, three microbatches in flight",
       .model = model(4 * n, 2 * n, 2, n),
       .batch = 1,
       .length = 7,
       .microbatches = 3},
      {.name = "grouped queries, one head of keys a rank",
       .model = model(3 * n, n, 4, 5 * n),
       .batch = 3,
       .length = 2},
      {.name = "a single position", .model = model(n, n, 2, n), .length = 1},
      {.name = "drawn",
       .model = model(2 * n, n, 2 + 2 * below(3), n * (1 + below(6))),
       .batch = 1 + below(3),
       .length = 2 + below(7),
       .leftover = -0.5}};
  for (size_t k = 0; k < cases.size(); ++k) cases[k].seed = seed + 1000 * k;
  return cases;
}

}  // namespace

void expect_block(Block block, int ranks, uint64_t seed, lab::grading::JobOptions options) {
  options.given = {"1", "2"};
  const std::vector<Case> cases = draw_cases(ranks, seed + 100'000 * lab::grading::scenario_seed());
  std::vector<Call> calls;
  for (const Case& c : cases) {
    Parcel input;
    set_model(c.model, input);
    input.set("mlp", block == Block::kMlp ? 1 : 0);
    input.set("batch", static_cast<double>(c.batch));
    input.set("length", static_cast<double>(c.length));
    input.set("microbatches", static_cast<double>(c.microbatches));
    input.set("leftover", c.leftover);
    for (const auto& [name, value] : draw_values(c)) input.set(name, value);
    for (size_t m = 0; m < c.microbatches; ++m) {
      input.set(fmt::format("input.{}", m), input_of(c, m));
      input.set(fmt::format("gradient.{}", m), gradient_of(c, m));
    }
    calls.push_back(
        {.scenario = "block",
         .inputs = std::vector<Parcel>(static_cast<size_t>(ranks), input),
         .name = fmt::format("{}; {} heads, {} of keys, hidden {}, [{}, {}]", c.name, c.model.heads,
                             c.model.kv_heads, c.model.hidden_dim, c.batch, c.length)});
  }
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& results) {
    const Judge judge(cases[k], block, results);
    judge.outputs();
    judge.gradients();
  });
}

}  // namespace lab10
