// Layers and microbatches, and how a block's passes on several ranks are judged.
#include "tests/labs/10_tensor_parallel/blocks.h"

#include <random>

#include "tests/labs/10_tensor_parallel/block_mistakes.h"
#include "tests/labs/10_tensor_parallel/block_oracle.h"

namespace lab10 {

using lab::grading::Call;

namespace {

/// Judges one call: every tensor in the order in which it is computed, so that the first one that
/// is wrong says where to look.
class Judge {
 public:
  Judge(const BlockCase& c, Block block, const std::vector<Parcel>& ranks)
      : case_(c),
        block_(block),
        values_(draw_values(c)),
        whole_(compute(c, block, values_)),
        ranks_(ranks) {}

  void forward() const {
    for (size_t m = 0; m < case_.microbatches; ++m)
      for (size_t r = 0; r < ranks_.size(); ++r) {
        const Parcel& sent = ranks_[r].part(fmt::format("forward.sent.{}", m));
        expect_tensor(at(name() + "_forward: its input, which is only read,", r, m),
                      ranks_[r].tensor(fmt::format("input.{}", m)), numbers_of(input_of(case_, m)));
        std::string made = "its input";
        for (const Kept& kept : kept_by(case_, block_, whole_, m, own(r))) {
          const std::string what = fmt::format("{}_forward: kept.{}", name(), kept.name);
          expect_tensor(at(what, r, m), ranks_[r].tensor(fmt::format("kept.{}.{}", kept.name, m)),
                        kept.numbers, [&] { return mistakes(r).kept(what + ": ", kept.name, m); },
                        {.unexplained = first_of(
                             wrong_messages(name() + "_forward", sent, talks(), size()),
                             kept.made_by.empty() ? what + ": changed: mlp_forward only reads it"
                                                  : what + ": wrong, although " + made +
                                                        " is right: that leaves " + kept.made_by),
                         .where = place(r, m),
                         .if_not_finite =
                             what + " has numbers that nobody has computed: the function must fill "
                                    "it, for the backward pass, and read nothing before it is "
                                    "filled"});
          made = "kept." + kept.name;
        }
        const std::string forward = name() + "_forward";
        expect_tensor(
            at(forward + (mlp() ? ": output" : ": kept.middle"), r, m),
            ranks_[r].tensor(fmt::format("output.{}", m)), whole_.outputs[m],
            [&] { return mistakes(r).output(forward + ": ", m); },
            {.unexplained = first_of(
                 wrong_messages(forward, sent, talks(), size()),
                 forward + ": wrong, although " + made + " is right: that leaves " +
                     (mlp() ? "SwiGLU, the product with down" : "the product with attention_out") +
                     ", its sum and the residual path"),
             .where = place(r, m)});
        expect_all_reduces(forward, sent, talks(), size());
        untouched(r, m, "forward");
      }
  }

  void backward() const {
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (const std::string& parameter : matrices()) weight(r, parameter);
    for (size_t m = case_.microbatches; m-- > 0;)
      for (size_t r = 0; r < ranks_.size(); ++r) {
        const std::string what = name() + "_backward: the gradient of its input";
        expect_tensor(at(what, r, m), ranks_[r].tensor(fmt::format("gradient.{}", m)),
                      whole_.gradients[m],
                      [&] { return mistakes(r).gradient(name() + "_backward: ", m); },
                      {.unexplained = first_of(wrong_backward_messages(r, m),
                                               what + ": wrong, although the gradients of the "
                                                      "matrices are right: that leaves its sum and "
                                                      "the norm's backward pass"),
                       .where = place(r, m)});
      }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      weight(r, norm());
      for (size_t m = 0; m < case_.microbatches; ++m) {
        if (const std::string wrong = wrong_backward_messages(r, m); !wrong.empty()) stop(wrong);
        untouched(r, m, "backward");
      }
      for (const auto& [parameter, value] : values_)
        expect_tensor("the value of " + parameter + ", which is only read,",
                      ranks_[r].tensor("value." + parameter),
                      numbers_of(lab::slice_of(parameter, value, own(r))));
    }
  }

 private:
  bool mlp() const { return block_ == Block::kMlp; }
  std::string name() const { return mlp() ? "mlp" : "attention"; }
  lab::TensorSlice own(size_t r) const { return slice(r, ranks_.size()); }
  int talks() const { return ranks_.size() > 1 ? 1 : 0; }
  int64_t size() const { return case_.rows() * case_.model.dim; }
  BlockMistakes mistakes(size_t r) const { return {case_, block_, values_, whole_, own(r)}; }
  static std::string at(const std::string& what, size_t r, size_t m) {
    return fmt::format("{} on rank {}, microbatch {}", what, r, m);
  }
  static std::string place(size_t r, size_t m) {
    return fmt::format("rank {}, microbatch {}, ", r, m);
  }
  std::string wrong_backward_messages(size_t r, size_t m) const {
    return wrong_messages(name() + "_backward", ranks_[r].part(fmt::format("backward.sent.{}", m)),
                          talks(), size());
  }

  /// In the order of the backward pass.
  std::vector<std::string> matrices() const {
    const std::string mlp = "model.layers.0.mlp.";
    const std::string attention = "model.layers.0.self_attn.";
    if (block_ == Block::kMlp)
      return {mlp + "down_proj.weight", mlp + "gate_proj.weight", mlp + "up_proj.weight"};
    return {attention + "o_proj.weight", attention + "v_proj.weight", attention + "k_proj.weight",
            attention + "q_proj.weight"};
  }
  std::string norm() const {
    return mlp() ? "model.layers.0.post_attention_layernorm.weight"
                 : "model.layers.0.input_layernorm.weight";
  }

  /// Where to look if the gradient of a parameter is wrong and those before it are right.
  static std::string made_from(const std::string& parameter) {
    if (parameter.ends_with("down_proj.weight"))
      return "the gradient of the output, and SwiGLU's output, computed again from kept.gate_up";
    if (parameter.ends_with("o_proj.weight"))
      return "the gradient of the output, and kept.attention";
    if (parameter.ends_with("gate_proj.weight") || parameter.ends_with("up_proj.weight"))
      return "what lab::swiglu_backward makes of kept.gate_up and of the gradient that "
             "weights.down passes on, and the norm's output, computed again from kept.middle, "
             "weights.mlp_norm and kept.mlp_inverse_rms";
    if (parameter.ends_with("layernorm.weight"))
      return "the sum of all ranks' gradients of the norm's output, and what "
             "lab::rmsnorm_backward is given: the norm's input and inverse_rms";
    const std::string attention =
        "what lab::attention_backward makes of kept.qkv, kept.attention, kept.logsumexp and of the "
        "gradient that weights.attention_out passes on";
    const std::string normed =
        ", and the norm's output, computed again from the input, weights.attention_norm and "
        "kept.attention_inverse_rms";
    return attention + (parameter.ends_with("v_proj.weight") ? "" : ", rotated back") + normed;
  }

  void weight(size_t r, const std::string& parameter) const {
    const Numbers sum = numbers_of(lab::slice_of(parameter, whole_.weights.at(parameter), own(r)));
    const std::string what = fmt::format("{}_backward: the gradient of {}", name(),
                                         parameter.substr(std::string("model.layers.0.").size()));
    expect_tensor(
        fmt::format("{} on rank {}", what, r), ranks_[r].tensor(parameter),
        plus(sum, Numbers(sum.size(), case_.leftover)),
        [&] { return mistakes(r).weight(fmt::format("{} on rank {}: ", what, r), parameter); },
        {.terms = 100.0 * static_cast<double>(case_.rows()),
         .unexplained = first_of(wrong_backward_messages(r, 0),
                                 what + ": wrong. It is made from " + made_from(parameter))});
  }

  /// What attention has filled, which the MLP must leave alone.
  void untouched(size_t r, size_t m, const char* pass) const {
    if (const std::string& changed = ranks_[r].text(fmt::format("{}.changes.{}", pass, m));
        !changed.empty())
      stop(fmt::format("{}_{} changes {}: it must leave alone what attention has filled", name(),
                       pass, changed));
  }

  const BlockCase& case_;
  Block block_;
  Values values_;
  BlockResult whole_;
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
std::vector<BlockCase> draw_cases(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t limit) { return static_cast<int64_t>(random() % limit); };
  std::vector<BlockCase> cases{
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
      {.name = "gates of hundreds", .model = model(n, n, 4, 3 * n), .gates = 300},
      {.name = "hundreds of positions, the MLP as wide as attention",
       .model = model(n, n, 2, 2 * n),
       .batch = 65,
       .length = 8},
      {.name = "gradients of zeros", .model = model(n, n, 2, n), .leftover = 0.5, .gradients = 0},
      {.name = "drawn",
       .model = model(2 * n, n, 2 + 2 * below(3), n * (1 + below(6))),
       .batch = 1 + below(3),
       .length = 2 + below(7),
       .leftover = -0.5}};
  for (size_t k = 0; k < cases.size(); ++k) cases[k].seed = seed + 1000 * k;
  cases[1].model.norm_eps = 0.5F;
  cases[4].model.rope_theta = 50.0F;  // heads of 2 channels have one frequency, whatever the base
  return cases;
}

}  // namespace

void expect_block(Block block, int ranks, uint64_t seed, lab::grading::JobOptions options,
                  size_t groups) {
  options.given = {"1", "2"};
  const std::vector<BlockCase> cases =
      draw_cases(ranks, seed + 100'000 * lab::grading::scenario_seed());
  std::vector<Call> calls;
  for (const BlockCase& c : cases) {
    Parcel input;
    set_model(c.model, input);
    input.set("mlp", block == Block::kMlp ? 1 : 0);
    input.set("batch", static_cast<double>(c.batch));
    input.set("length", static_cast<double>(c.length));
    input.set("microbatches", static_cast<double>(c.microbatches));
    input.set("leftover", c.leftover);
    input.set("norm_eps", double{c.model.norm_eps});
    input.set("rope_theta", double{c.model.rope_theta});
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
  judge_in_groups(calls, groups, options, [&](size_t k, const std::vector<Parcel>& results) {
    const Judge judge(cases[k], block, results);
    judge.forward();
    judge.backward();
  });
}

}  // namespace lab10
