// See findings.h.
#include "tests/labs/01cuda_kernels/findings.h"

#include <fmt/format.h>

#include <array>

namespace lab01cuda {
namespace {

struct Lesson {
  const char* verb;  // both occur in the finding
  const char* words;
  const char* meaning;
};

// The first that fits.
constexpr std::array kLessons = {
    Lesson{"", "divergent barrier",
           "not all threads of the block come to the same __syncthreads(): a barrier must not "
           "stand in a branch, in a loop or behind a return that only some of them take"},
    Lesson{"", "does not name",
           "the mask of a shuffle must name every lane that takes part, and every lane that is "
           "read: for all 32 it is 0xffffffff"},
    Lesson{"waits in", "_sync with mask",
           "lanes of one warp wait in a shuffle for others that do not come: all 32 lanes must "
           "call it together, also those that have no column of the row"},
    Lesson{"", "nothing orders blocks",
           "two blocks use the same place in memory, and one of them writes: blocks run in any "
           "order, nothing waits for anything; each place belongs to one block"},
    Lesson{": reads", "wrote: without a barrier",
           "a thread reads what another one writes, and no __syncthreads() lies between: it may "
           "read before the other has written"},
    Lesson{": writes", "read: without a barrier",
           "a thread writes what another one reads, and no __syncthreads() lies between: memory "
           "may be used again only after all have read it"},
    Lesson{": writes", "wrote: without a barrier",
           "several threads write the same place, and which comes last is chance: let one thread "
           "write, or give each warp a place of its own"},
    Lesson{"", "which no thread of this block has written",
           "shared memory is read before any thread has written it: is a __syncthreads() missing "
           "between the writing and the reading? Or is more read than there is: a block has "
           "blockDim.x / 32 warps, hence as many partial results, not always 32"},
    Lesson{"", "outside",
           "a thread reaches beyond the end of an array: also threads that lie beyond the end of "
           "the row must compare their index with its length"},
    Lesson{"", "memory of the host",
           "a kernel reaches for memory of the host: a GPU sees its own memory only"},
};

}  // namespace

std::string explain_finding(const std::string& finding) {
  for (const Lesson& lesson : kLessons)
    if (finding.find(lesson.verb) != std::string::npos &&
        finding.find(lesson.words) != std::string::npos)
      return fmt::format("{}\n{}", lesson.meaning, finding);
  return fmt::format("the emulation stopped the kernel\n{}", finding);
}

}  // namespace lab01cuda
