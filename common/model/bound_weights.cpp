// Stages whose weights are bound and released part by part.
#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/model/llama_stage_impl.h"

namespace lab {

size_t LlamaStage::Impl::bindable(size_t part) const {
  require(weights.memory == WeightMemory::kBound,
          "bind or release on a stage that holds its weights itself: make it with "
          "WeightMemory::kBound");
  require(part < weights.part_count(), "part {} of a stage of {} parts", part,
          weights.part_count());
  return part;
}

void LlamaStage::Impl::expect_binding(size_t part, const Tensor& flat) const {
  const Weights::Part& it = weights.parts[bindable(part)];
  require(
      flat.defined() && flat.is_contiguous() && flat.device() == device && flat.numel() >= it.size,
      "a tensor of shape {} cannot hold {}: it takes {} contiguous elements on the stage's "
      "device",
      to_string(flat.shape()), it.name, it.size);
}

void LlamaStage::Impl::expect_bound(Pass pass, size_t part) const {
  if (weights.memory == WeightMemory::kOwn) return;
  const size_t first = weights.first_of_part(part);
  require(weights.named[first].value.defined(),
          "the {} pass needs the weights of {}, which are not bound: bind them before, and release "
          "them after",
          pass == Pass::kForward ? "forward" : "backward", weights.parts[part].name);
  require(pass == Pass::kForward || weights.named[first].gradient.defined(),
          "the backward pass adds to the gradient of {}, which is not bound: bind a tensor of "
          "zeros before",
          weights.parts[part].name);
}

void LlamaStage::Impl::with_parts(Pass pass, size_t first, size_t count,
                                  const std::function<void()>& work) const {
  const auto use = [&](size_t number) {
    const size_t uses = part_order.size();
    const auto part = [&](size_t n) {
      return part_order[pass == Pass::kForward ? n : uses - 1 - n];
    };
    PartUse result{.pass = pass, .part = part(number)};
    if (number + 1 < uses) result.next = part(number + 1);
    return result;
  };
  for (size_t number = first; number < first + count; ++number)
    if (before_part) before_part(use(number));
  for (size_t number = first; number < first + count; ++number)
    expect_bound(pass, use(number).part);
  work();
  for (size_t number = first; number < first + count; ++number)
    if (after_part) after_part(use(number));
}

size_t LlamaStage::part_count() const { return impl_->weights.part_count(); }
int64_t LlamaStage::part_size(size_t part) const { return impl_->weights.parts.at(part).size; }
const std::string& LlamaStage::part_name(size_t part) const {
  return impl_->weights.parts.at(part).name;
}

std::span<const Parameter> LlamaStage::part_parameters(size_t part) const {
  const Weights& weights = impl_->weights;
  require(part < weights.part_count(), "part {} of a stage of {} parts", part,
          weights.part_count());
  const size_t first = weights.first_of_part(part);
  return std::span(weights.named).subspan(first, weights.first_of_part(part + 1) - first);
}

void LlamaStage::bind(size_t part, const Tensor& weights) {
  impl_->expect_binding(part, weights);
  impl_->weights.bind(part, weights.view({weights.numel()}));
}

void LlamaStage::bind_gradient(size_t part, const Tensor& gradient) {
  impl_->expect_binding(part, gradient);
  impl_->weights.bind_gradient(part, gradient.view({gradient.numel()}));
}

void LlamaStage::release(size_t part) { impl_->weights.bind(impl_->bindable(part), {}); }
void LlamaStage::release_gradient(size_t part) {
  impl_->weights.bind_gradient(impl_->bindable(part), {});
}

void LlamaStage::initialise(size_t part) const {
  impl_->expect_bound(Pass::kForward, part);
  impl_->weights.initialise(part, impl_->seed);
}

void LlamaStage::watch_parts(PartObserver before, PartObserver after) {
  impl_->before_part = std::move(before);
  impl_->after_part = std::move(after);
}

}  // namespace lab
