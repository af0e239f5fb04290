// The rank program of lab 05: calls an implementation's functions on what the verdict sends.
#include "common/grading/rank_main.h"
#include "tests/labs/05_microbatches/rank_scenarios.h"

int main(int argc, char** argv) {
  return lab::grading::rank_main(argc, argv,
                                 {.alone = {{"plans", lab05::run_plans},
                                            {"programs", lab05::run_programs},
                                            {"to_the_end", lab05::run_to_the_end}},
                                  .group = {{"wave", lab05::run_wave},
                                            {"train_step", lab05::run_train_step},
                                            {"refusal", lab05::run_refusal},
                                            {"parts", lab05::run_parts},
                                            {"one_process", lab05::run_one_process},
                                            {"mixed_up", lab05::run_mixed_up}}});
}
