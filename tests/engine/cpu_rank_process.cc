// One of the processes of a job on CPUs (rank_process.h).
#include "tests/engine/peers_support.h"
#include "tests/engine/rank_process.h"

int main(int argc, char** argv) {
  return trainyard::testing::run_rank_process(argc, argv, trainyard::testing::joined_devices);
}
