// Which clients take part is the student's choice, within the contract; for a comparison with the
// solution it must not be.
#include "labs/11_parameter_server/parameter_server.h"

namespace lab11 {

std::vector<int> sample_clients(int clients, int count, uint64_t /*seed*/, int64_t round) {
  std::vector<int> chosen;
  for (int c = 0; c < clients && static_cast<int>(chosen.size()) < count; ++c)
    if ((c + round) % 2 == 0 || clients - c <= count - static_cast<int>(chosen.size()))
      chosen.push_back(c);
  return chosen;
}

}  // namespace lab11
