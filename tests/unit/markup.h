// What can be said of a page or a figure without a browser.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lab {

inline size_t count(const std::string& text, const std::string& part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

// As of XML: every element that is opened is closed, in the right order; quotes come in pairs, and
// an ampersand begins one of four entities. Empty if so.
inline std::string first_fault(const std::string& text) {
  for (size_t at = text.find('&'); at != std::string::npos; at = text.find('&', at + 1)) {
    const std::string name = text.substr(at, text.find(';', at) - at);
    if (name != "&amp" && name != "&lt" && name != "&gt" && name != "&quot")
      return "no entity: " + name.substr(0, 20);
  }
  std::vector<std::string> open;
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const size_t end = text.find_first_of("<>", at + 1);
    if (end == std::string::npos || text[end] == '<') return "a tag that is not closed";
    const std::string tag = text.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag == "!DOCTYPE html") continue;
    if (count(tag, "\"") % 2 != 0) return "an odd number of quotes in " + tag;
    if (tag.starts_with('/')) {
      if (open.empty() || tag != "/" + open.back()) return "closed but not opened: " + tag;
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

}  // namespace lab
