// The rank program of lab 06: calls an implementation's functions on what the verdict sends.
#include "common/grading/rank_main.h"
#include "tests/labs/06_hybrid_2x3/rank_scenarios.h"

int main(int argc, char** argv) {
  return lab::grading::rank_main(
      argc, argv,
      {.alone = {{"places", lab06::run_places}, {"shards", lab06::run_shards}},
       .group = {{"mesh", lab06::run_mesh},
                 {"mesh_refusal", lab06::run_mesh_refusal},
                 {"total_targets", lab06::run_total_targets},
                 {"gradients", lab06::run_gradients},
                 {"gradients_refusal", lab06::run_gradients_refusal},
                 {"train_step", lab06::run_train_step},
                 {"mean_loss", lab06::run_mean_loss},
                 {"parts", lab06::run_parts},
                 {"one_process", lab06::run_one_process}}});
}
