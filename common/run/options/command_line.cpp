// CommandLine: the options of a program, by CLI11.
#include "common/run/options/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <sstream>

#include "common/error.h"
#include "common/io/files.h"
#include "common/run/options/main_guard.h"

namespace lab {
namespace {

/// CLI11 would wait for a named pipe, read a device without end, and take gigabytes for nested
/// sections, which no file of options has. Returns what is wrong, or "".
std::string problem_with_options_file(const std::string& path) {
  constexpr size_t kMaxSize = size_t{1} << 20;
  try {
    const MappedFile file(path);
    if (file.bytes().size() > kMaxSize)
      return fmt::format("{}: larger than 1 MiB, which no file of options is", path);
    std::istringstream lines{std::string(file.text())};
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      const size_t begin = line.find_first_not_of(" \t\r");
      if (begin != std::string::npos && line[begin] == '[')
        return fmt::format("{}: line {} begins a section; a file of options has none", path,
                           number);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

using Option = CommandLine::Option;

struct CommandLine::Impl {
  CLI::App app;
  std::string group;
  std::set<std::string> given;
  std::vector<const CLI::Option*> kept;
  std::vector<const CLI::Option*> carried;

  CLI::Option* finish(CLI::Option* option) const {
    return group.empty() ? option : option->group(group);
  }

  static std::map<std::string, std::string> values(const std::vector<const CLI::Option*>& options) {
    std::map<std::string, std::string> values;
    for (const CLI::Option* option : options)
      values[option->get_name()] =
          option->count() > 0 ? option->as<std::string>() : option->get_default_str();
    return values;
  }
};

Option& Option::shows_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::within(int64_t least, int64_t most) {
  const auto check = [=](const std::string& text) -> std::string {
    int64_t value = 0;
    if (!CLI::detail::lexical_cast(text, value) || value < least || value > most)
      return fmt::format("{} does not lie between {} and {}", text, least, most);
    return "";
  };
  option_->check(CLI::Validator(check, ""));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}

Option& Option::comma_separated(int least, int most) {
  option_->delimiter(',')->expected(least, most);
  return *this;
}

Option& Option::not_in_file() {
  option_->configurable(false);
  return *this;
}

Option& Option::kept() {
  line_->impl_->kept.push_back(option_);
  return *this;
}

Option& Option::carried() {
  line_->impl_->carried.push_back(option_);
  return *this;
}

CommandLine::CommandLine(const std::string& about) : impl_(std::make_unique<Impl>()) {
  impl_->app.description(about);
  impl_->app.get_formatter()->column_width(38);
}

CommandLine::~CommandLine() = default;

void CommandLine::group(const std::string& name) { impl_->group = name; }

template <typename Value>
Option CommandLine::add(const std::string& name, Value& value, const std::string& type,
                        const std::string& text) {
  CLI::Option* option = impl_->finish(impl_->app.add_option(name, value, text));
  if (!type.empty()) option->type_name(type);
  return {*this, option};
}

using Text = const std::string&;
template Option CommandLine::add(Text, int&, Text, Text);
template Option CommandLine::add(Text, int64_t&, Text, Text);
template Option CommandLine::add(Text, uint64_t&, Text, Text);
template Option CommandLine::add(Text, float&, Text, Text);
template Option CommandLine::add(Text, double&, Text, Text);
template Option CommandLine::add(Text, std::string&, Text, Text);
template Option CommandLine::add(Text, std::filesystem::path&, Text, Text);
template Option CommandLine::add(Text, std::vector<int32_t>&, Text, Text);
template Option CommandLine::add(Text, std::vector<double>&, Text, Text);
template Option CommandLine::add(Text, std::optional<int>&, Text, Text);
template Option CommandLine::add(Text, std::optional<int64_t>&, Text, Text);
template Option CommandLine::add(Text, std::optional<float>&, Text, Text);
template Option CommandLine::add(Text, std::optional<double>&, Text, Text);

Option CommandLine::add_flag(const std::string& name, bool& value, const std::string& text) {
  return {*this, impl_->finish(impl_->app.add_flag(name, value, text))};
}

Option CommandLine::add_words(const std::string& name, const std::vector<std::string>& words,
                              const std::function<void(const std::string&)>& take,
                              const std::string& text) {
  CLI::Option* option =
      impl_->finish(impl_->app.add_option_function<std::string>(name, take, text));
  option->type_name(fmt::format("{}", fmt::join(words, "|")))
      ->check(CLI::IsMember(words).description(""));
  return {*this, option};
}

void CommandLine::add_config(const std::string& text) {
  impl_->finish(impl_->app.set_config("--config", "", text))
      ->type_name("FILE")
      ->check(CLI::Validator(problem_with_options_file, ""));
  impl_->app.allow_config_extras(CLI::config_extras_mode::error);
}

void CommandLine::read(int argc, const char* const* argv) {
  try {
    impl_->app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw HelpRequested(impl_->app.help());
  } catch (const CLI::ParseError& error) {
    // Most of CLI11's errors do not say whether an option came from the file.
    const CLI::Option* config = impl_->app.get_config_ptr();
    const std::string places = config == nullptr || config->count() == 0
                                   ? ""
                                   : fmt::format("options come from the command line and from {}; ",
                                                 config->results().back());
    throw UsageError(fmt::format("{} ({}--help lists the options)", error.what(), places));
  }
  for (const CLI::Option* option : impl_->app.get_options())
    if (option->count() > 0) impl_->given.insert(option->get_name());
}

const std::set<std::string>& CommandLine::given() const { return impl_->given; }

std::map<std::string, std::string> CommandLine::kept() const { return Impl::values(impl_->kept); }

std::map<std::string, std::string> CommandLine::carried() const {
  return Impl::values(impl_->carried);
}

// CLI11 gives empty texts for values that follow from other options: they are left out, and will
// follow again.
std::string CommandLine::as_file() const {
  std::istringstream lines(
      impl_->app.config_to_str(/*default_also=*/true, /*write_description=*/true));
  std::string file;
  std::string comment;  // about the option that follows
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#') || line.empty()) {
      comment += line + "\n";
      continue;
    }
    const std::string name = "--" + line.substr(0, line.find('='));
    if (!line.ends_with("=\"\"") || impl_->given.contains(name)) file += comment + line + "\n";
    comment.clear();
  }
  return file;
}

}  // namespace lab
