// How a function refuses its arguments: noted in a rank program, judged in a verdict.
#pragma once

#include <functional>
#include <string>

namespace lab::grading {

/// Calls `body`. Empty if it returns, otherwise what it throws: "lab::Error (the text)" or "another
/// exception (the text)". A TODO that is left and a broken connection are not refusals: they
/// propagate.
std::string refusal_of(const std::function<void()>& body);

/// Whether `body` threw lab::Error, as the contracts ask.
bool is_refusal(const std::string& of_body);

/// What `body` did, as part of a sentence: "returns", "throws lab::Error (the text)".
std::string in_words(const std::string& of_body);

}  // namespace lab::grading
