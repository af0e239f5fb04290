// The kinds of exceptions.
#include "tests/grading/refusal.h"

#include <fmt/format.h>

#include <exception>

#include "common/comm/process_group.h"
#include "common/error.h"
#include "common/todo.h"

namespace lab::grading {
namespace {

constexpr char kError[] = "lab::Error";

}  // namespace

std::string refusal_of(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const NotImplemented&) {
    throw;
  } catch (const BrokenOff&) {
    throw;
  } catch (const Error& error) {
    return fmt::format("{} ({})", kError, error.what());
  } catch (const std::exception& error) {
    return fmt::format("another exception ({})", error.what());
  }
}

bool is_refusal(const std::string& of_body) { return of_body.starts_with(kError); }

std::string in_words(const std::string& of_body) {
  return of_body.empty() ? "returns" : "throws " + of_body;
}

}  // namespace lab::grading
