// What a rank's tensors take: expected, limited, reported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "common/run/options/run_plan.h"
#include "common/run/report/run_report.h"
#include "common/tensor/memory_account.h"

namespace train {

/// The bytes that a rank of each stage needs, by the formulas of ./workbook plan. `spans`: of a
/// pipeline; with shards, the whole model.
std::vector<double> planned_memory(const lab::RunPlan& plan, int64_t vocabulary,
                                   const std::vector<lab::StageSpan>& spans);

/// Throws UsageError if a rank would need more than `limit_mb`, which is 0 if there is none.
void check_limit(const lab::RunPlan& plan, int64_t limit_mb, const std::vector<double>& planned);

/// The memory of all ranks on rank 0, nothing on the others. All ranks call it. `planned`: of each
/// stage.
std::vector<lab::RankMemory> gather_memory(lab::ProcessGroup& world,
                                           const lab::MemoryAccount& account,
                                           const lab::RunPlan& plan,
                                           const std::vector<double>& planned);

/// "memory      91.0 MB at most, on rank 0 (planned: 90.3 MB); peaks of weights 15.3 MB, ...".
std::string describe_memory(const std::vector<lab::RankMemory>& ranks);

}  // namespace train
