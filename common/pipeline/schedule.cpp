#include "common/pipeline/schedule.h"

#include <algorithm>
#include <array>

#include "common/error.h"

namespace lab {
bool Schedule::has_messages() const {
  return std::ranges::any_of(stages, [](const ActionList& actions) {
    return std::ranges::any_of(actions,
                               [](const Action& action) { return is_message(action.kind); });
  });
}

std::string to_string(const Action& action) {
  static constexpr std::array kPrefixes = {"F", "B", "<F", ">F", "<B", ">B"};
  return fmt::format("{}{}{}", kPrefixes.at(static_cast<size_t>(action.kind)), action.microbatch,
                     action.posted ? "*" : "");
}

std::string to_text(const Schedule& schedule) {
  std::string text =
      fmt::format("stages {} microbatches {}\n", schedule.stage_count(), schedule.microbatches);
  for (int stage = 0; stage < schedule.stage_count(); ++stage) {
    text += fmt::format("{}:", stage);
    for (const Action& action : schedule.stages[static_cast<size_t>(stage)])
      text += fmt::format(" {}", to_string(action));
    text += '\n';
  }
  return text;
}

}  // namespace lab
