#include "src/train/checkpoint_writer.h"

#include <chrono>
#include <utility>

namespace trainyard {

void CheckpointWriter::begin(int64_t step, std::function<Result<std::filesystem::path>()> write) {
  TRAINYARD_CHECK(!under_way(), "two checkpoints are written at once");
  step_ = step;
  written_ = std::async(std::launch::async, std::move(write));
}

bool CheckpointWriter::done() const {
  return under_way() && written_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

CheckpointWriter::Written CheckpointWriter::take() { return {step_, written_.get()}; }

}  // namespace trainyard
