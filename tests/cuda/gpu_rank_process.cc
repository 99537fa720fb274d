// One of the processes of a job on emulated GPUs (tests/engine/rank_process.h), with one GPU each.
#include "src/runtime/cuda/backend.h"
#include "src/runtime/join.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/engine/rank_process.h"

namespace trainyard {
namespace {

std::vector<RankDevice> join_gpu(const std::shared_ptr<Peers>& peers) {
  testing::set_device_count(static_cast<int>(peers->count()));
  const auto open = [&]() -> Result<std::vector<RankDevice>> {
    const auto ordinal = static_cast<int>(peers->index());
    return std::vector<RankDevice>{
        {"devices/gpu-" + std::to_string(ordinal), std::make_shared<cuda::CudaBackend>(ordinal)}};
  };
  return join_devices(peers, open).value();
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  return trainyard::testing::run_rank_process(argc, argv, trainyard::join_gpu);
}
