// What diagnoses say about mismatches, and their advice: one line each.
#pragma once

#include <string>
#include <vector>

#include "common/comm/diagnosis/rank_snapshot.h"

namespace lab {

/// For two posted operations that should meet but differ in size or kind.
std::string mismatch_headline(const RankSnapshot& a, const OpRecord& a_op, const RankSnapshot& b,
                              const OpRecord& b_op);

std::string advice_about_mismatch(const OpRecord& op);
std::string advice_about_streams(const OpRecord& a, const OpRecord& b);
/// `kinds`: the kinds of operation in the circle. `sends_are_posted`: one of its ranks has posted
/// sends that are not done.
std::string advice_about_circle(const std::vector<OpKind>& kinds, bool sends_are_posted);
/// About a rank that has ended, or is stopped or silent.
std::string advice_about(const RankSnapshot& gone);

}  // namespace lab
