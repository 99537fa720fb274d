#include "src/train/checkpoint_writer.h"

#include <time.h>

#include <chrono>
#include <utility>

namespace trainyard {

namespace {

int64_t thread_cpu_us() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000 + t.tv_nsec / 1000;
}

}  // namespace

void CheckpointWriter::begin(int64_t step, std::function<Result<std::filesystem::path>()> write) {
  TRAINYARD_CHECK(!under_way(), "two checkpoints are written at once");
  step_ = step;
  written_ = std::async(std::launch::async, [this, write = std::move(write)] {
    const int64_t begin_us = thread_cpu_us();
    Result<std::filesystem::path> saved = write();
    cpu_us_ = thread_cpu_us() - begin_us;
    return saved;
  });
}

bool CheckpointWriter::done() const {
  return under_way() && written_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

CheckpointWriter::Written CheckpointWriter::take() {
  Result<std::filesystem::path> saved = written_.get();
  return {step_, std::move(saved), cpu_us_};
}

}  // namespace trainyard
