#include "src/runtime/backend.h"

#include <chrono>
#include <new>

#include "kernels/alignment.h"
#include "src/base/check.h"

namespace trainyard {
namespace {

/// For backends whose kernels have finished when their submission returns.
class HostStopwatch final : public Stopwatch {
 public:
  void mark() override { points_.push_back(Clock::now()); }
  std::vector<double> take() override {
    std::vector<double> seconds;
    for (const Clock::time_point point : points_) {
      seconds.push_back(std::chrono::duration<double>(point - points_.front()).count());
    }
    points_.clear();
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> points_;
};

}  // namespace

std::unique_ptr<Stopwatch> Backend::make_stopwatch() { return std::make_unique<HostStopwatch>(); }

Status Backend::connect(std::span<Backend* const> /*ranks*/) {
  return make_error(ErrorCode::kFailedPrecondition, "DEVICES_UNSUPPORTED",
                    "the " + std::string(name()) + " backend trains a job on one device only");
}

Status Backend::join(std::span<Backend* const> /*ranks*/, const ProcessGroup& /*group*/) {
  return make_error(ErrorCode::kFailedPrecondition, "NODES_UNSUPPORTED",
                    "resources.nodes: the " + std::string(name()) +
                        " backend trains a job on devices of one node only, expected 1");
}

void Backend::gather_rows(const kernels::ResidentRows& /*resident*/,
                          const kernels::ResidentSample* /*samples*/, int64_t /*count*/,
                          void* /*x*/, void* /*target*/,
                          std::span<const kernels::CopyPiece> /*copies*/) {
  TRAINYARD_CHECK(false, "the " + std::string(name()) + " backend cannot store a dataset's rows");
}

void Backend::copy_pieces(std::span<const kernels::CopyPiece> /*pieces*/) {
  TRAINYARD_CHECK(false, "the " + std::string(name()) + " backend cannot store a dataset's rows");
}

void* Backend::allocate_host(int64_t bytes) {
  return ::operator new (static_cast<size_t>(bytes),
                         std::align_val_t{static_cast<size_t>(kHostAlignment)});
}

void Backend::release_host(void* memory) noexcept {
  ::operator delete (memory, std::align_val_t{static_cast<size_t>(kHostAlignment)});
}

}  // namespace trainyard
