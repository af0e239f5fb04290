// Checks a sentencepiece model before the library reads it, because the library trusts its input.
#pragma once

#include <string_view>

namespace lab {

/// What makes `model`, the bytes of a .model file, unsafe to load; an empty string if nothing does.
///
/// Such a file is a protocol buffer. sentencepiece 0.1.97 checks its vocabulary, but follows the
/// offsets of the character map (the trie that normalizes text) wherever they point, and allocates
/// for as many pieces as the file claims. This function checks exactly that, and that no part of a
/// model is missing.
std::string_view find_model_damage(std::string_view model);

}  // namespace lab
