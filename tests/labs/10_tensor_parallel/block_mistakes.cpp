#include "tests/labs/10_tensor_parallel/block_mistakes.h"

#include <algorithm>
#include <functional>

#include "common/ops/ops.h"
#include "tests/labs/10_tensor_parallel/block_trace.h"

namespace lab10 {

Tensor BlockMistakes::in_one_sequence(size_t m) const {
  const QkvColumns x(case_, whole_.kept[m].qkv);
  const Tensor output = Tensor::empty(x.q.shape());
  lab::AttentionShape shape = attention_shape(case_);
  shape.batch = 1;
  shape.queries = shape.keys = case_.rows();
  lab::attention_forward(shape, x.q, x.k, x.v, output,
                         Tensor::empty({1, case_.model.heads, case_.rows()}));
  return output;
}

std::vector<Mistake> BlockMistakes::kept(const std::string& where, const std::string& tensor,
                                         size_t m) const {
  const auto with = [&](const auto& change) {
    BlockResult changed = whole_;
    change(changed.kept[m]);
    for (const Kept& kept : kept_by(case_, block_, changed, m, own_))
      if (kept.name == tensor) return kept.numbers;
    return Numbers{};
  };
  const auto rotate = [&](const Tensor& columns, int64_t first) {
    const Tensor angles = lab::rope_table(case_.rows() + first + case_.model.context,
                                          case_.model.head_dim(), case_.model.rope_theta);
    lab::rope(columns, angles, case_.length, first, lab::Rotation::kForward);
  };
  const std::string kept_weights = where + kKeptWeights;
  if (tensor == "gate_up")
    return {{with([&](auto& kept) { kept.gate_up = before().kept[m].gate_up; }), kept_weights}};
  if (tensor == "middle")
    return {{whole_.outputs[m], where + "it is overwritten by the output; the backward pass needs "
                                        "what it held"}};
  if (tensor == "qkv")
    return {{with([&](auto& kept) { kept.qkv = before().kept[m].qkv; }), kept_weights},
            {with([&](auto& kept) { kept.qkv = not_rotated().kept[m].qkv; }),
             where + "queries and keys are not rotated (rope)"},
            {with([&](auto& kept) {
               const Tensor mixed = not_rotated().kept[m].qkv;
               QkvColumns(case_, mixed).q.copy_from(QkvColumns(case_, kept.qkv).q);
               kept.qkv = mixed;
             }),
             where + "queries are rotated, but not the keys"},
            {with([&](auto& kept) {
               kept.qkv = kept.qkv.clone();
               rotate(QkvColumns(case_, kept.qkv).v, 0);
             }),
             where + "the values are rotated, too"},
            {with([&](auto& kept) {
               kept.qkv = not_rotated().kept[m].qkv;
               rotate(QkvColumns(case_, kept.qkv).rotated, own_.rank);
             }),
             where + "rotated too far: positions begin at 0 on every rank"}};
  if (tensor == "attention")
    return {{with([&](auto& kept) { kept.attention = in_one_sequence(m); }),
             where + "attention runs across the sequences of a batch: keep them separate "
                     "(shape.attention())"}};
  return {};
}

std::vector<Mistake> BlockMistakes::output(const std::string& where, size_t m) const {
  const Numbers input = numbers_of(input_of(case_, m));
  const Numbers& right = whole_.outputs[m];
  const Numbers own = of_this_rank().outputs[m];
  const BlockTrace t = trace(case_, block_, values_, whole_, m);
  return {
      {own, where + "only what this rank's slice contributes: the last matrix of a block is row "
                    "parallel, so sum its products over the ranks"},
      {plus(right, input, ranks() - 1),
       where + "the residual path is in the sum once per rank: add it after the sum"},
      {plus(right, input, ranks() / 2 - 1),
       where + "half of the residual path is in the sum of every rank: that is right for two ranks "
               "only; add it after the sum"},
      {plus(right, input, -1),
       where + "the residual path is missing: add the block's output to its input"},
      {plus(own, input, -1), where + "only this rank's slice, and without the residual path"},
      {plus(plus(right, input, -1), numbers_of(t.normed)),
       where + "the norm's output is added, not its input"}};
}

std::vector<Mistake> BlockMistakes::gradient(const std::string& where, size_t m) const {
  const Numbers residual = numbers_of(gradient_of(case_, m));
  const Numbers& right = whole_.gradients[m];
  const Numbers through = plus(right, residual, -1);
  const double n = ranks();
  return {
      {of_this_rank().gradients[m],
       where + "only what has passed through this rank's slice: the gradient of the norm's output "
               "must be the sum over the ranks (copy_to_ranks, backward)"},
      {plus(right, residual, n - 1),
       where + "the residual path is in the sum once per rank: sum the gradient of the norm's "
               "output over the ranks before you call rmsnorm_backward, which adds to `gradient`"},
      {through, where + "the residual path is missing: rmsnorm_backward adds to the gradient"},
      {plus(residual, through, n),
       where + "the gradient of the output is summed over the ranks, although it is the same "
               "on all of them"},
      {plus(residual, through, 1 / n),
       where + "what has come through the block is a mean over the ranks, not their sum"},
      {residual, where + "nothing has come through the block"}};
}

std::vector<Mistake> BlockMistakes::weight(const std::string& where,
                                           const std::string& parameter) const {
  const Tensor& whole = whole_.weights.at(parameter);
  const Numbers sum = slice_of(parameter, whole);
  const Numbers before = leftover(sum);
  BlockCase only_last = case_;  // backward passes run in the opposite order
  only_last.microbatches = 1;
  const Numbers of_last =
      slice_of(parameter, compute(only_last, block_, values_).weights.at(parameter));
  std::vector<Mistake> all{
      {sum, where + "it is overwritten; gradients are added up over microbatches"},
      {of_last, where + "it is overwritten; gradients are added up over microbatches"},
      {before, where + "it is as it was"}};
  if (whole.dims() == 1) {
    all.push_back({plus(before, slice_of(parameter, of_this_rank().weights.at(parameter))),
                   where + "the gradient of the norm is that of this rank's slice alone: complete "
                           "the gradient of its output before rmsnorm_backward"});
    all.push_back({plus(before, sum, ranks()),
                   where + "the gradient of the norm is counted once per rank: it is complete on "
                           "every rank"});
    return all;
  }

  all.push_back({plus(before, sum, ranks()),
                 where + "the gradient of the output is summed over the ranks, although it is the "
                         "same on all of them"});
  std::vector<BlockTrace> traces;
  for (size_t m = 0; m < case_.microbatches; ++m)
    traces.push_back(trace(case_, block_, values_, whole_, m));
  using Pick = std::function<Tensor(size_t)>;
  const auto made = [&](const Pick& dy, const Pick& x, const std::string& message) {
    Numbers numbers = before;
    for (size_t m = 0; m < traces.size(); ++m)
      numbers = plus(numbers, slice_of(parameter, weight_gradient(case_, parameter, dy(m), x(m))));
    all.push_back({numbers, where + message});
  };
  const bool mlp = block_ == Block::kMlp;
  const BlockTrace& newest = traces.back();
  const char* another =
      "made with what the forward pass of another microbatch has left: several "
      "are in flight";
  if (parameter.ends_with("down_proj.weight") || parameter.ends_with("o_proj.weight")) {
    const Pick dy = [&](size_t m) { return traces[m].output_dy; };
    made(
        dy, [&](size_t m) { return traces[m].last_input_dy; },
        mlp ? "made with the gradient of SwiGLU's output in the place of the output itself: "
              "swiglu_backward recomputes it, or call swiglu_forward before that"
            : "made with the gradient of attention's output in the place of the output itself, "
              "which is in kept.attention");
    made([&](size_t m) { return traces[m].input_dy; },
         [&](size_t m) { return traces[m].last_input; },
         "made from `gradient` after rmsnorm_backward has added to it");
    made(
        dy, [&](size_t) { return newest.last_input; }, another);
    if (mlp)
      made(
          dy,
          [&](size_t m) {
            const Tensor hidden = Tensor::empty(traces[m].last_input.shape());
            lab::swiglu_forward(traces[m].first_dy, hidden);
            return hidden;
          },
          "SwiGLU's output is computed again after swiglu_backward has turned kept.gate_up into "
          "its gradient: do it before");
    return all;
  }
  const Pick dy = [&](size_t m) { return traces[m].first_dy; };
  const Pick normed = [&](size_t m) { return traces[m].normed; };
  made(
      dy, [&](size_t m) { return traces[m].input; },
      "made with the input of the norm, not with its output");
  const auto norm_of = [&](size_t m, const Tensor& x, const Tensor& weight) {
    const Tensor y = Tensor::empty(x.shape());
    const lab::LayerActivations& kept = whole_.kept[m];
    lab::rmsnorm_apply(x, weight, mlp ? kept.mlp_inverse_rms : kept.attention_inverse_rms, y);
    return y;
  };
  const Tensor ones = Tensor::empty({case_.model.dim});
  ones.fill(1.0F);
  made(
      dy, [&](size_t m) { return norm_of(m, traces[m].input, ones); },
      "the norm is computed again without its weight");
  const std::string other = mlp ? "input_layernorm" : "post_attention_layernorm";
  if (const auto found = values_.find("model.layers.0." + other + ".weight");
      found != values_.end())
    made(
        dy, [&](size_t m) { return norm_of(m, traces[m].input, found->second); },
        "the norm is computed again with the weight of the layer's other norm");
  if (!mlp)
    made(
        dy,
        [&](size_t m) {
          return norm_of(m, whole_.kept[m].middle,
                         values_.at("model.layers.0.input_layernorm.weight"));
        },
        "the norm is computed again from kept.middle, not from the input");
  made(
      dy, [&](size_t) { return newest.normed; }, another);
  if (mlp) {
    made([&](size_t m) { return traces[m].first; }, normed,
         "made from kept.gate_up before swiglu_backward has turned it into its gradient");
    return all;
  }
  const auto of_qkv = [&](size_t m, const Tensor& qkv, bool rotates_back) {
    return qkv_gradient(case_, whole_, traces[m], m, qkv, rotates_back);
  };
  made([&](size_t m) { return of_qkv(m, traces[m].first, false); }, normed,
       "the gradients of queries and keys are not rotated back (rope, Rotation::kBackward)");
  made(
      [&](size_t m) {
        const Tensor gradient = of_qkv(m, traces[m].first, false);
        lab::rope(QkvColumns(case_, gradient).rotated, rope_angles(case_), case_.length, 0,
                  lab::Rotation::kForward);
        return gradient;
      },
      normed, "the gradients of queries and keys are rotated forward, not back");
  made(
      [&](size_t m) {
        const Tensor gradient = traces[m].first_dy.clone();
        QkvColumns(case_, gradient)
            .q.copy_from(QkvColumns(case_, of_qkv(m, traces[m].first, false)).q);
        return gradient;
      },
      normed, "the gradients of the queries are not rotated back");
  made(
      [&](size_t m) {
        const Tensor gradient = of_qkv(m, traces[m].first, false);
        const Tensor swapped = gradient.clone();
        const QkvColumns from(case_, gradient);
        const QkvColumns to(case_, swapped);
        to.k.copy_from(from.v);
        to.v.copy_from(from.k);
        lab::rope(to.rotated, rope_angles(case_), case_.length, 0, lab::Rotation::kBackward);
        return swapped;
      },
      normed, "the gradients of keys and values are exchanged");
  for (const lab::Rotation rotation : {lab::Rotation::kForward, lab::Rotation::kBackward})
    made(
        [&](size_t m) {
          const Tensor qkv = traces[m].first.clone();
          lab::rope(QkvColumns(case_, qkv).rotated, rope_angles(case_), case_.length, 0, rotation);
          return of_qkv(m, qkv, true);
        },
        normed,
        "attention_backward is given queries and keys rotated differently from those in "
        "kept.qkv: pass them as attention_forward took them");
  made([&](size_t m) { return of_qkv(m, newest.first, true); }, normed, another);
  made([&](size_t m) { return traces[m].first; }, normed,
       "made from kept.qkv, not from its gradient");
  return all;
}

}  // namespace lab10
