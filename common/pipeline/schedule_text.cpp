// Reading schedules from text.
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/io/files.h"
#include "common/parse_number.h"
#include "common/pipeline/schedule.h"
#include "common/printable.h"

namespace lab {
namespace {

constexpr int kMaxStages = 65536;
constexpr size_t kMaxFileSize = size_t{16} << 20;

std::string in_quotes(std::string_view word) { return fmt::format("'{}'", printable(word)); }

// A whole number of at least 0 that fits into an int.
std::optional<int> number(std::string_view digits) {
  return digits.starts_with('-') ? std::nullopt : parse_number<int>(digits);
}

std::optional<ActionKind> kind_of(char direction, char pass) {
  if (pass != 'F' && pass != 'B') return std::nullopt;
  const bool forward = pass == 'F';
  if (direction == '<') return forward ? ActionKind::kRecvActivation : ActionKind::kRecvGradient;
  if (direction == '>') return forward ? ActionKind::kSendActivation : ActionKind::kSendGradient;
  return forward ? ActionKind::kForward : ActionKind::kBackward;
}

// "F3", "<B0*"; nothing if `word` is no action.
std::optional<Action> action_of(std::string_view word) {
  Action action;
  const char direction = word.front() == '<' || word.front() == '>' ? word.front() : ' ';
  if (direction != ' ') word.remove_prefix(1);
  if (direction != ' ' && word.ends_with('*')) {
    action.posted = true;
    word.remove_suffix(1);
  }
  if (word.size() < 2) return std::nullopt;
  const std::optional<ActionKind> kind = kind_of(direction, word[0]);
  const std::optional<int> microbatch = number(word.substr(1));
  if (!kind || !microbatch) return std::nullopt;
  action.kind = *kind;
  action.microbatch = *microbatch;
  return action;
}

class Parser {
 public:
  explicit Parser(const std::string& origin) : origin_(origin) {}

  Schedule parse(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      ++line_;
      parse_line(line.substr(0, line.find('#')));
    }
    if (header_line_ == 0) fail("{}: no line \"stages P microbatches M\"", origin_);
    for (size_t stage = 0; stage < seen_.size(); ++stage)
      if (!seen_[stage])
        fail("{}:{}: {} stages are announced, but stage {} has no line", origin_, header_line_,
             seen_.size(), stage);
    return schedule_;
  }

 private:
  void parse_line(const std::string& line) {
    std::istringstream words(line);
    if ((words >> std::ws).eof()) return;
    header_line_ == 0 ? parse_header(words) : parse_stage(line);
  }

  void parse_header(std::istringstream& words) {
    std::string first, stages, second, microbatches, more;
    words >> first >> stages >> second >> microbatches;
    if (!words || first != "stages" || second != "microbatches" || words >> more)
      fail("{}: expected \"stages P microbatches M\" first", here());
    schedule_.stages.resize(static_cast<size_t>(count(stages, "stages", kMaxStages)));
    schedule_.microbatches = count(microbatches, "microbatches", INT32_MAX);
    seen_.resize(schedule_.stages.size());
    header_line_ = line_;
  }

  void parse_stage(const std::string& line) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos)
      fail("{}: expected a stage and its actions, as in \"0: F0 >F0 <B0 B0\"", here());
    const std::string label = line.substr(0, colon);
    std::istringstream words(label);
    std::string word, more;
    const std::optional<int> stage =
        words >> word && !(words >> more) ? number(word) : std::nullopt;
    if (!stage) fail("{}: {} is not the number of a stage", here(), in_quotes(label));
    if (*stage >= schedule_.stage_count())
      fail("{}: stage {}, but line {} announces {} (they count from 0)", here(), *stage,
           header_line_, schedule_.stage_count());
    const auto index = static_cast<size_t>(*stage);
    if (seen_[index] != 0)
      fail("{}: stage {} has a line already, line {}", here(), *stage, seen_[index]);
    seen_[index] = line_;
    parse_actions(line.substr(colon + 1), schedule_.stages[index]);
  }

  void parse_actions(const std::string& line, ActionList& actions) const {
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const std::optional<Action> action = action_of(word);
      if (!action)
        fail(
            "{}: {} is not an action; known are F3, B3, <F3, >F3, <B3, >B3, and messages with a * "
            "at the end, which are posted",
            here(), in_quotes(word));
      if (action->microbatch >= schedule_.microbatches)
        fail("{}: {} is out of range: line {} announces {} microbatches (they count from 0)",
             here(), in_quotes(word), header_line_, schedule_.microbatches);
      actions.push_back(*action);
    }
  }

  int count(std::string_view word, const char* what, int most) const {
    const std::optional<int> value = number(word);
    if (!value || *value > most)
      fail("{}: the number of {} is {}, not one from 0 to {}", here(), what, in_quotes(word), most);
    return *value;
  }

  std::string here() const { return fmt::format("{}:{}", origin_, line_); }

  std::string origin_;
  Schedule schedule_;
  int line_ = 0;
  int header_line_ = 0;    // 0: not yet
  std::vector<int> seen_;  // the line of each stage; 0: none yet
};

}  // namespace

Schedule schedule_from_text(const std::string& text, const std::string& origin) {
  return Parser(origin).parse(text);
}

Schedule read_schedule(const std::string& path) {
  const MappedFile file(path);
  require(file.bytes().size() <= kMaxFileSize, "{}: larger than 16 MiB, which no schedule is",
          path);
  return schedule_from_text(std::string(file.text()), path);
}

}  // namespace lab
