// Numbers as people read them.
#include "common/format_count.h"

namespace lab {

std::string format_count(int64_t value) {
  std::string reversed;
  for (int64_t rest = value; rest > 0 || reversed.empty(); rest /= 10) {
    if (reversed.size() % 4 == 3) reversed += ',';
    reversed += static_cast<char>('0' + rest % 10);
  }
  return {reversed.rbegin(), reversed.rend()};
}

}  // namespace lab
