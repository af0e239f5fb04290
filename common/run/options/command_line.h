// CommandLine: the options of a program. The only part of the workbook that knows CLI11, whose
// header takes seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace CLI {
class Option;
}

namespace lab {

class CommandLine {
 public:
  /// What else is to be said about an option. Every call returns the option again.
  class Option {
   public:
    Option& shows_default();  // in --help, and in the file of options
    Option& required();
    Option& within(int64_t least, int64_t most);
    Option& one_of(const std::vector<std::string>& words);
    Option& comma_separated(int least = 1, int most = 1 << 29);  // values; CLI11 takes no more
    Option& not_in_file();  // --config does not take it, and as_file() leaves it out
    /// It decides what a run computes: --resume takes it from the checkpoint.
    Option& kept();
    /// --resume takes it from the checkpoint unless it is given again.
    Option& carried();

   private:
    friend class CommandLine;
    Option(CommandLine& line, CLI::Option* option) : line_(&line), option_(option) {}
    CommandLine* line_;
    CLI::Option* option_;
  };

  /// `about`: the first line of --help.
  explicit CommandLine(const std::string& about);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// Under which heading --help shows the options that are added from now on.
  void group(const std::string& name);

  /// `read` writes to `value` if the option is given; the present content of `value` is the
  /// default. `type` is what --help calls a value, such as "N"; if empty, its kind. For whole and
  /// decimal numbers, texts, paths, vectors of numbers, and optionals of numbers.
  template <typename Value>
  Option add(const std::string& name, Value& value, const std::string& type,
             const std::string& text);
  /// An option without a value.
  Option add_flag(const std::string& name, bool& value, const std::string& text);
  /// One of several words, each of which has a meaning.
  template <typename Value>
  Option add_choice(const std::string& name, Value& value,
                    const std::map<std::string, Value>& meanings, const std::string& text) {
    std::vector<std::string> words;
    for (const auto& [word, meaning] : meanings) words.push_back(word);
    return add_words(
        name, words, [&value, meanings](const std::string& word) { value = meanings.at(word); },
        text);
  }
  /// --config: options from a file. Those given on the command line take precedence.
  void add_config(const std::string& text);

  /// Throws HelpRequested for --help, and UsageError for anything that the options do not allow.
  void read(int argc, const char* const* argv);

  // After read():
  /// The names of the options that were given, "--steps".
  const std::set<std::string>& given() const;
  /// The values of the kept options, or of the carried ones, by name.
  std::map<std::string, std::string> kept() const;
  std::map<std::string, std::string> carried() const;
  /// All options as a file that --config accepts.
  std::string as_file() const;

 private:
  Option add_words(const std::string& name, const std::vector<std::string>& words,
                   const std::function<void(const std::string&)>& take, const std::string& text);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
